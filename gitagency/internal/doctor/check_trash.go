package doctor

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
)

// checkPrematureTrash finds the trash ref and the archive of an invocation or a worktree that has not ended.
func (x *checkRun) checkPrematureTrash(s treeInfo, code string) {
	if x.changing {
		return
	}
	const interrupted = " but has not ended: a discard or removal was interrupted before anything was removed"
	if commit := x.refs[core.TrashRef(s.id)]; commit != "" {
		f := Finding{Code: code, ID: s.id, Path: x.repo.RefPath(core.TrashRef(s.id)), Problem: "it has a trash ref" + interrupted}
		x.addFinding(f, func(ctx context.Context) error { return x.deleteRedundantTrash(ctx, s, f, commit) })
	}
	if x.HasTrashArchive(s.id) {
		x.addFinding(Finding{Code: code, ID: s.id, Path: x.Store.TrashArchivePath(x.ID, s.id), Problem: "it has an archive in the trash" + interrupted},
			func(context.Context) error { return x.Store.RemoveTrashArchive(x.ID, s.id) })
	}
}

// deleteRedundantTrash deletes a trash ref if its content is still in the tree. If it is not, files were changed or an old
// tree was restored; then only a person can decide about the ref.
func (x *checkRun) deleteRedundantTrash(ctx context.Context, s treeInfo, f Finding, commit string) error {
	subject := git.WorktreeSpec{Name: s.id, Dir: s.tree, Branch: s.branch, Base: s.base, Message: "agency: current state"}
	now, err := x.CaptureForTrash(ctx, x.repo, subject, core.TrashOptions{Archive: true})
	if err != nil {
		return err
	}
	now.Close()
	covered, err := snapshot.Covers(ctx, x.repo, now.Commit, commit)
	if err != nil {
		return err
	}
	if !covered {
		f.Problem, f.AtRisk = core.TrashRef(s.id)+" keeps files that are no longer in the tree", true
		f.FixCommand = "git update-ref -d " + core.TrashRef(s.id) + " " + commit
		return &FindingError{f}
	}
	return x.repo.DeleteRef(ctx, core.TrashRef(s.id), commit)
}

// checkArchives finds archives in the trash that belong to nothing: prune removes an archive before the record and the
// trash ref of its invocation.
func (x *checkRun) checkArchives(context.Context) error {
	if x.changing {
		return nil
	}
	archives, err := x.Store.TrashArchives(x.ID)
	if err != nil {
		return err
	}
	for _, id := range archives {
		if x.isRecorded(id) || x.refs[core.TrashRef(id)] != "" {
			continue
		}
		x.addFinding(Finding{Code: "orphan-archive", ID: id, Path: x.Store.TrashArchivePath(x.ID, id), AtRisk: true, Problem: "archive of an invocation that has neither a record nor a trash ref"},
			func(context.Context) error { return x.Store.RemoveTrashArchive(x.ID, id) })
	}
	return nil
}
