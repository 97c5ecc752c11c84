package creation

import (
	"context"
	"errors"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// requestedOrigin returns the start point that a request names, without what its worktree adds.
func requestedOrigin(ctx context.Context, r *core.Repository, req Request) (StartPoint, error) {
	origin, err := snapshotStartPoint(ctx, r, req.FromSnapshot)
	if err != nil || req.From == "" {
		return origin, err
	}
	commit, _, found, err := r.Git.ResolveCommit(ctx, req.From)
	if err != nil {
		return origin, err
	}
	if !found {
		return origin, &fault.NoCommitError{Name: req.From}
	}
	origin.Base = commit
	origin.skipLFS, err = isOnlyOfAgents(ctx, r, commit)
	return origin, err
}

// isOnlyOfAgents reports whether no branch, tag or remote-tracking branch of the user has a commit: then an agent may have
// made it, and nothing in its tree, such as .lfsconfig, may decide what git on the host downloads.
func isOnlyOfAgents(ctx context.Context, r *core.Repository, commit string) (bool, error) {
	refs, err := r.Git.RefsContaining(ctx, commit, core.HeadsPrefix, "refs/tags/", "refs/remotes/")
	if err != nil {
		return false, err
	}
	for _, ref := range refs {
		if !strings.HasPrefix(ref, core.SandboxRef("")) {
			return false, nil
		}
	}
	return true, nil
}

// explainMissingBranch replaces the error of a start from the branch of a created worktree if that branch does not exist.
func explainMissingBranch(ctx context.Context, r *core.Repository, repo *git.Repo, wt core.Worktree, origin StartPoint, err error) error {
	if !fault.Is[*fault.NoCommitError](err) || wt.Branch == "" || origin.Base != core.HeadsPrefix+wt.Branch {
		return err
	}
	err = r.MissingBranch(ctx, repo, core.Invocation{StartedAt: wt.CreatedAt}, origin.Base)
	var missing *fault.MissingBranchError
	if errors.As(err, &missing) {
		missing.Worktree = wt.ID
	}
	return err
}
