package doctor

import (
	"context"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// checkEndedSandbox finds parts that should have been removed with an invocation.
func (x *checkRun) checkEndedSandbox(s treeInfo, e store.Entry[store.InvocationMeta]) {
	if x.changing || x.cleanupRunning {
		return
	}
	left := x.remainingPaths(s)
	if x.refs[s.branch] != "" && !x.checkedOutElsewhere(s) {
		left = append(left, x.repo.RefPath(s.branch))
	}
	for _, ref := range x.pinsOf(s.id) {
		left = append(left, x.repo.RefPath(ref))
	}
	if len(left) == 0 {
		return
	}
	x.addFinding(Finding{
		Code: "interrupted-discard", ID: s.id, Path: left[0], Problem: "it was " + e.Record.Landing + ", but not all of it was removed",
		AtRisk: store.IsDir(s.tree) || store.IsDir(store.WithdrawnPath(s.tree)),
	}, func(ctx context.Context) error {
		if _, err := discard.End(ctx, x.Repository, x.repo, e, core.TrashOptions{Archive: true}); err != nil {
			return err
		}
		return store.RemoveLeftovers(s.recordDir)
	})
}

// checkArchivedWorktree finds parts that should have been removed with a worktree.
func (x *checkRun) checkArchivedWorktree(ctx context.Context, s treeInfo, w core.Worktree) {
	if x.changing {
		return
	}
	var left []string
	if s.managed {
		left = x.remainingPaths(s)
	} else if marked, err := s.marker.IsIn(s.tree); err == nil && marked && !x.inventory().HasRecord(s.tree) && x.isOurWorktree(ctx, s) {
		left = append(left, s.marker.Path(s.tree))
	}
	left = append(left, x.leftoverFiles(s.recordDir)...)
	if len(left) == 0 {
		return
	}
	x.addFinding(Finding{
		Code: "interrupted-archive", ID: s.id, Path: left[0], Problem: "it was archived, but not all of it was removed",
		AtRisk: s.managed && (store.IsDir(s.tree) || store.IsDir(store.WithdrawnPath(s.tree))),
	}, x.fixByArchiving(w))
}

// remainingPaths lists the existing parts of a tree that has ended.
func (x *checkRun) remainingPaths(s treeInfo) []string {
	candidates := []string{s.tree, store.WithdrawnPath(s.tree), store.RemovablePath(s.tree), x.repo.AdminDir(s.id)}
	if around := filepath.Dir(s.tree); around != s.recordDir {
		candidates = append(candidates, around)
	}
	var left []string
	for _, path := range candidates {
		if _, there := store.FirstExisting(path); there {
			left = append(left, path)
		}
	}
	return append(left, x.leftoverFiles(s.recordDir)...)
}

// leftoverFiles lists the files that a killed process left beside a record.
func (x *checkRun) leftoverFiles(home string) []string {
	left, err := store.ListLeftovers(home)
	if err != nil {
		x.Warn("%s: %v", home, err)
	}
	return left
}

// checkedOutElsewhere reports whether another worktree has the branch of an ended sandbox checked out. Then the branch
// rightly stays.
func (x *checkRun) checkedOutElsewhere(s treeInfo) bool {
	worktrees := []worktree.Worktree{{Path: x.CommonDir, Branch: x.MainWorktreeRef()}}
	for _, e := range x.entries {
		if e.Name != s.id {
			worktrees = append(worktrees, e.Worktree)
		}
	}
	return discard.CheckedOutElsewhere(worktrees, s.changesetSpec()) != ""
}
