package doctor

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// checkClone finds a clone of which a git directory is missing, or does not find the objects that it borrows. It reports whether
// it found one; then the tree would seem to belong to another repository.
func (x *checkRun) checkClone(s treeInfo, e store.Entry[store.InvocationMeta]) (found bool) {
	prims := settings.FillLegacyPrimitives(e.Record.Primitives)
	if prims.Changeset != settings.ChangesetClone || !store.IsDir(s.tree) {
		return false
	}
	x.checkPinnedBase(s, e)
	problem := sandbox.CloneDefect(x.Repository, e.ID, prims)
	if problem == "" {
		return false
	}
	x.addFinding(Finding{
		Code: "missing-clone", ID: s.id, Path: s.tree, AtRisk: true, Problem: problem,
		Outcome: "it can be read again, or is made again from the branch and the index that the repository has of it",
	}, func(ctx context.Context) error {
		if err := sandbox.RepairClone(ctx, x.Repository, x.repo, e); err != nil {
			return err
		}
		return x.relinkWorktree(ctx, s)
	})
	return true
}
