package merge

import (
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// Promise: an index that was read ahead is taken for the one that is there only while it is that.
func TestAnIndexThatWasReadAheadIsTheOneThatIsThere(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	head, gitDir := l.Git("rev-parse", "HEAD"), filepath.Join(l.Root, ".git")
	m := openMerger(l)
	m.Prefetch(t.Context(), head, head, gitDir)
	if x := m.PrefetchedIndexOf(gitDir); x == nil || x.Count == 0 {
		t.Fatalf("it was not read: %v", x)
	}
	if x := m.PrefetchedIndexOf(filepath.Join(gitDir, "worktrees", "other")); x != nil {
		t.Error("it was taken for that of another worktree")
	}
	l.Write("new", "x\n")
	l.Git("add", "new")
	if x := m.PrefetchedIndexOf(gitDir); x != nil {
		t.Error("it is another by now")
	}
}
