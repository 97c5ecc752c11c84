package landing

import (
	"context"
	"errors"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/update"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// completeLanded returns the result of a landing that is done, and removes the parts of the sandbox that a killed landing
// left.
func completeLanded(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], dry bool) (Result, error) {
	m := entry.Record
	landed := Result{
		Invocation: entry.ID, Commit: m.LandedCommit, Before: m.LandedBefore, Branch: m.LandedBranch, Strategy: m.LandedStrategy, Tip: m.LandedTip,
		Already: true, DryRun: dry, LeftOut: []snapshots.LeftOut{},
	}
	kept, err := r.TrashCommit(ctx, repo, entry.ID)
	if kept != "" {
		landed.TrashRef = core.TrashRef(entry.ID)
	}
	if err != nil {
		return landed, err
	}
	gone := &fault.NoLongerLandedError{ID: entry.ID, Commit: m.LandedCommit, Branch: m.LandedBranch, Ref: landed.TrashRef, RestoreCommit: landed.TrashRef}
	if kept != "" && kept != m.LandedTip {
		gone.RestoreCommit = m.LandedTip
	}
	if there, err := stillOnBranch(ctx, r, repo, m, gone); err != nil || !there {
		return Result{}, err
	}
	if dry {
		return landed, nil
	}
	if m.UnlandedCommit != "" { // the landing was brought back after an unland
		if err := r.Store.UpdateInvocationMeta(r.ID, entry.ID, func(m *store.InvocationMeta) {
			m.UnlandedCommit, m.UnlandedAt = "", nil
		}); err != nil {
			return Result{}, err
		}
	}
	return landed, discard.RemoveRemains(ctx, r, repo, entry.ID)
}

// stillOnBranch reports whether a landing is still on its branch. If it is not, it completes gone and returns it as the
// error.
func stillOnBranch(ctx context.Context, r *core.Repository, repo *git.Repo, m store.InvocationMeta, gone *fault.NoLongerLandedError) (bool, error) {
	if m.LandedCommit == "" {
		return true, nil
	}
	there, err := repo.IsAncestor(ctx, m.LandedCommit, core.HeadsPrefix+m.LandedBranch)
	if err != nil {
		return false, err
	}
	switch {
	case there && m.UnlandedCommit != "":
		gone.UnlandedBy = m.UnlandedCommit
		there, err = isStillApplied(ctx, r, repo, m)
	case there:
		there, err = isStillApplied(ctx, r, repo, m)
		if gone.Reverted = true; m.LandedStrategy != "" {
			gone.RestoreArgs = "cherry-pick " + landedRevisions(m)
		}
	case m.UnlandedCommit == "": // the sandbox's tip may have been merged again by hand
		there, err = repo.IsAncestor(ctx, m.LandedTip, core.HeadsPrefix+m.LandedBranch)
	}
	if err != nil || there {
		return there, err
	}
	gone.Tree = checkoutPath(ctx, repo, core.HeadsPrefix+m.LandedBranch)
	return false, gone
}

// checkoutPath returns the worktree that has a branch checked out, for use in hints; empty if none has.
func checkoutPath(ctx context.Context, repo *git.Repo, branch string) string {
	_, tree, err := update.CheckedOutIn(ctx, repo, branch)
	var busy *fault.WorktreeBusyError
	if errors.As(err, &busy) {
		return busy.Worktree
	}
	return tree
}
