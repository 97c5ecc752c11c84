package doctor

import (
	"context"
	"maps"
	"path"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// pinsOf lists the refs that keep objects for a sandbox.
func (x *checkRun) pinsOf(id string) []string {
	var refs []string
	for _, ref := range []string{changeset.BaseRef(id), changeset.StagedRef(id)} {
		if x.pins[ref] != "" {
			refs = append(refs, ref)
		}
	}
	return refs
}

// checkUnrecordedPins finds refs that keep objects for a sandbox without a record. If the sandbox still has a branch or an entry, other
// checks find that, and their fixes delete these refs too.
func (x *checkRun) checkUnrecordedPins(context.Context) error {
	if x.dataDirMissing || x.changing {
		return nil
	}
	found := map[string]bool{}
	for ref := range x.pins {
		found[path.Base(ref)] = true
	}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		_, registered := x.entries[id]
		branch, known := x.repo.ReadRefFile(core.SandboxRef(id))
		pins := x.pinsOf(id)
		if len(pins) == 0 || !ids.Valid(id) || x.isRecorded(id) || registered || branch != "" || !known {
			continue
		}
		x.addFinding(Finding{
			Code: "orphan-ref", ID: id, Path: x.repo.RefPath(pins[0]), AtRisk: x.pins[changeset.StagedRef(id)] != "",
			Problem: "ref that keeps objects for a sandbox without a record",
		}, func(ctx context.Context) error { return x.removePins(ctx, id) })
	}
	return nil
}

// removePins deletes the refs that keep objects for a sandbox that is gone. Its staged files are kept in the trash, unless the trash has
// the content of the sandbox already.
func (x *checkRun) removePins(ctx context.Context, id string) error {
	kept, err := x.TrashCommit(ctx, x.repo, id)
	if err != nil {
		return err
	}
	if kept == "" {
		tx := x.BeginTx("doctor")
		if err := tx.Step(ctx, "trash", func() error {
			return x.KeepCommit(ctx, tx, x.repo, core.TrashRef(id), x.pins[changeset.StagedRef(id)])
		}); err != nil {
			return err
		}
		tx.Commit()
	}
	return core.Unpin(ctx, x.repo, id)
}

// checkPinnedBase finds a clone whose base commit no ref keeps from being pruned.
func (x *checkRun) checkPinnedBase(s treeInfo, e store.Entry[store.InvocationMeta]) {
	ref := changeset.BaseRef(s.id)
	if x.pins[ref] != "" || e.Record.BaseCommit == "" || x.changing {
		return
	}
	x.addFinding(Finding{
		Code: "missing-clone", ID: s.id, Path: x.repo.RefPath(ref), AtRisk: true, Problem: "the ref that keeps the objects which it borrows is missing",
		Outcome: "the ref is created again at the base commit of the sandbox",
	}, func(ctx context.Context) error {
		return changeset.Clone{Worktree: core.WorktreeBackend(x.repo)}.PinBase(ctx, changeset.Spec{ID: s.id, Base: e.Record.BaseCommit, Reason: "agency: doctor"})
	})
}
