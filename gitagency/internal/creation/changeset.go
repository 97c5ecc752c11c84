package creation

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// chooseChangeset decides how the tree of a plan is made, once the commit that it starts from is known, and returns the backend.
// An overlay that was asked for and is not possible is refused; with auto, a worktree takes its place. It says what it chose.
func chooseChangeset(ctx context.Context, r *core.Repository, repo *git.Repo, req *Plan, point StartPoint) (changeset.Backend, error) {
	asked := req.prims.Changeset
	if asked != settings.ChangesetOverlay && asked != settings.ChangesetAuto {
		return core.WorktreeBackend(repo), nil
	}
	why, err := whyNoOverlay(ctx, r, repo, req, point)
	switch {
	case err != nil:
		return nil, err
	case why == "":
		if req.prims.Changeset = settings.ChangesetOverlay; asked == settings.ChangesetAuto {
			r.Warn("the changeset of this sandbox is overlay: its files exist only for commands in it")
		}
		return r.OverlayBackend(repo), nil
	case asked == settings.ChangesetAuto:
		r.Warn("the changeset of this sandbox is worktree, since an overlay is not possible: %s", why)
		req.prims.Changeset = settings.ChangesetWorktree
		return core.WorktreeBackend(repo), nil
	}
	return nil, &fault.UnsupportedError{Primitive: "changeset", Value: asked, Why: why + "; --changeset worktree works"}
}

// whyNoOverlay returns the reason why the tree of a plan cannot be an overlay; empty if it can.
func whyNoOverlay(ctx context.Context, r *core.Repository, repo *git.Repo, req *Plan, point StartPoint) (string, error) {
	switch {
	case req.prims.Isolation != settings.IsolationOS:
		return "an overlay exists only behind walls, and --isolation " + req.prims.Isolation + " has none", nil
	case !worktree.HasPlainEntries(repo):
		return "the repository has settings of its own for each worktree, a sparse checkout, shared permissions or relative paths of worktrees", nil
	case point.hasSubmodules:
		return "the commit has submodules", nil
	}
	if why := confine.WhyNoOverlay(r.DataDir); why != "" {
		return r.DataDir + ": " + why, nil
	}
	return "", context.Cause(ctx)
}
