package doctor

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// checkPrematureTrash finds the trash ref and the archive of an invocation or a worktree that has not ended.
func (x *checkRun) checkPrematureTrash(s treeInfo, code string) {
	if x.changing {
		return
	}
	interrupted := " but has not ended: a discard or removal was interrupted before anything was removed"
	if code == "half-discarded" {
		interrupted += "; to complete the discard instead: git agency discard " + s.id
	}
	if commit := x.refs[core.TrashRef(s.id)]; commit != "" {
		f := Finding{Code: code, ID: s.id, Path: x.repo.RefPath(core.TrashRef(s.id)), Problem: "it has a trash ref" + interrupted}
		x.addFinding(f, func(ctx context.Context) error { return x.deleteRedundantTrash(ctx, s, f, commit) })
	}
	if x.HasTrashArchive(s.id) {
		f := Finding{Code: code, ID: s.id, Path: x.Store.TrashArchivePath(x.ID, s.id), Problem: "it has an archive in the trash" + interrupted}
		x.addFinding(f, func(ctx context.Context) error { return x.removeRedundantArchive(ctx, s, f) })
	}
}

// captureAgain captures the tree of an invocation or a worktree that has not ended, to compare it with its trash.
func (x *checkRun) captureAgain(ctx context.Context, s treeInfo) (core.TrashContent, error) {
	subject := git.WorktreeSpec{Name: s.id, Dir: s.tree, Branch: s.branch, Base: s.base, Message: "agency: current state"}
	return x.CaptureForTrash(ctx, x.repo, subject, core.TrashOptions{Archive: true, Dirs: x.GitDirsToArchive(s.id)})
}

// removeRedundantArchive removes an archive if the tree still has all of its files. If not, the archive may be the only
// copy; then only a person can decide about it.
func (x *checkRun) removeRedundantArchive(ctx context.Context, s treeInfo, f Finding) error {
	now, err := x.captureAgain(ctx, s)
	if err != nil {
		return err
	}
	defer now.Close()
	covered, err := x.CoversTrashArchive(ctx, s.id, now)
	if err != nil {
		return err
	}
	if !covered {
		f.Problem, f.AtRisk = f.Path+" keeps files that the tree no longer has; 'tar -tf "+quote.Shell(f.Path)+"' lists them", true
		f.FixCommand = "rm " + quote.Shell(f.Path)
		return &FindingError{f}
	}
	return x.Store.RemoveTrashArchive(x.ID, s.id)
}

// deleteRedundantTrash deletes a trash ref if its content is still in the tree. If it is not, files were changed or an old
// tree was restored; then only a person can decide about the ref.
func (x *checkRun) deleteRedundantTrash(ctx context.Context, s treeInfo, f Finding, commit string) error {
	now, err := x.captureAgain(ctx, s)
	if err != nil {
		return err
	}
	now.Close()
	covered, err := snapshot.Covers(ctx, x.repo, now.Commit, commit)
	if err != nil {
		return err
	}
	if !covered {
		f.Problem, f.AtRisk = core.TrashRef(s.id)+" keeps files that are no longer in the tree; 'git log -p -m --first-parent "+core.TrashRef(s.id)+"' shows them", true
		f.FixCommand = "git update-ref -d " + core.TrashRef(s.id) + " " + commit
		return &FindingError{f}
	}
	return x.repo.DeleteRef(ctx, core.TrashRef(s.id), commit)
}

// checkArchives finds archives in the trash that belong to nothing. Prune leaves none, since it removes an archive before
// the record and the trash ref of its invocation; a lost record of a sandbox without a commit does.
func (x *checkRun) checkArchives(ctx context.Context) error {
	if x.changing {
		return nil
	}
	archives, err := x.Store.TrashArchives(x.ID)
	if err != nil {
		return err
	}
	for _, id := range archives {
		if x.isRecorded(id) {
			continue
		}
		if commit, err := x.TrashCommit(ctx, x.repo, id); err != nil || commit != "" { // x.refs has only refs of recorded ids
			if err != nil {
				return err
			}
			continue
		}
		x.addFinding(Finding{Code: "orphan-archive", ID: id, Path: x.Store.TrashArchivePath(x.ID, id), AtRisk: true, Problem: "archive of an invocation that has neither a record nor a trash ref; to list it: tar -tf " + quote.Shell(x.Store.TrashArchivePath(x.ID, id))},
			func(ctx context.Context) error { return x.KeepOrphanArchive(ctx, x.repo, id) })
	}
	return nil
}
