package creation

import (
	"cmp"
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
)

// StartPoint is the initial state of a sandbox.
type StartPoint struct {
	Base                  string // base commit, which the sandbox is compared with later
	baseTree              string // its tree
	Snapshot, Head, index string // to start from a snapshot: its commit, the commit at HEAD and the tree of the index
	UntrustedConfig       bool   // do not run programs that the configuration of the repository names
	hasSubmodules         bool   // the commit has a file .gitmodules
	skipLFS               bool   // download no objects of Git LFS: an agent may have made the commit
	worktreeID, branch    string // integration worktree of the snapshot, if known, and the branch that its invocation lands on
}

// spec describes the tree of a new sandbox that starts here.
func (p StartPoint) spec(r *core.Repository, id, reason string) changeset.Spec {
	s := sandbox.Spec(r, id)
	s.Base, s.BaseTree, s.Tip, s.Reason = p.Base, p.baseTree, p.Head, reason
	s.FilesCommit, s.IndexTree, s.UntrustedConfig, s.SkipLFS = p.Snapshot, p.index, p.UntrustedConfig, p.skipLFS
	return s
}

// resolveStartPoint resolves the start point to object ids, once. The same git call checks for what would make the
// creation fail: a tracked .agency, a branch called "agency", and an existing branch with the name of the sandbox's
// branch, which it returns as taken.
func resolveStartPoint(ctx context.Context, r *core.Repository, repo *git.Repo, from StartPoint, branch string) (_ StartPoint, taken string, err error) {
	names := []string{from.Base + "^{commit}", core.HeadsPrefix + core.BranchNamespace, branch, from.Base + "^{tree}", from.Base + ":.gitmodules"}
	sources := []string{from.Base}
	if from.Snapshot != "" {
		names = append(names, from.Head+"^{commit}")
		sources = []string{from.Snapshot, from.Head, cmp.Or(from.index, from.Head)}
	}
	first := len(names)
	for _, source := range sources {
		names = append(names, source+":"+guard.AgencyDir)
	}
	found, err := repo.Lookup(ctx, names...)
	if err != nil {
		return StartPoint{}, "", err
	}
	if found[0].Missing() {
		return StartPoint{}, "", &fault.NoCommitError{Name: core.ShortBranch(from.Base)}
	}
	from.Base, from.baseTree, from.hasSubmodules = found[0].OID, found[3].OID, !found[4].Missing()
	if from.Snapshot != "" && found[5].Missing() {
		return StartPoint{}, "", &fault.NoCommitError{Name: from.Head}
	}
	for i, tracked := range found[first:] {
		if !tracked.Missing() {
			commit := from.Base
			if from.Snapshot != "" {
				commit = sources[i]
			}
			return StartPoint{}, "", &fault.TrackedMarkerError{Commit: commit}
		}
	}
	switch {
	case !found[1].Missing():
		return StartPoint{}, "", &fault.BranchInTheWayError{Branch: core.BranchNamespace}
	case !found[2].Missing():
		taken = branch
	}
	return from, taken, nil
}
