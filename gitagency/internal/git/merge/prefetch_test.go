package merge

import (
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// Promise: PrefetchedIndexOf returns the prefetched index only for the same worktree and while the index file is unchanged.
func TestPrefetchedIndexIsDroppedWhenChanged(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	head, gitDir := l.Git("rev-parse", "HEAD"), filepath.Join(l.Root, ".git")
	m := openMerger(l)
	m.Prefetch(t.Context(), head, head, gitDir)
	if x := m.PrefetchedIndexOf(gitDir); x == nil || x.Count == 0 {
		t.Fatalf("the index was not prefetched: %v", x)
	}
	if x := m.PrefetchedIndexOf(filepath.Join(gitDir, "worktrees", "other")); x != nil {
		t.Error("it was returned for another worktree")
	}
	l.Write("new", "x\n")
	l.Git("add", "new")
	if x := m.PrefetchedIndexOf(gitDir); x != nil {
		t.Error("it was returned although the index file has changed")
	}
}
