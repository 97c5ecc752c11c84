package git

import (
	"path/filepath"
	"testing"
)

// Promise: an index that was read ahead is taken for the one that is there only while it is that.
func TestAnIndexThatWasReadAheadIsTheOneThatIsThere(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	head, gitDir := l.git("rev-parse", "HEAD"), filepath.Join(l.dir, ".git")
	m := l.merger()
	m.Prefetch(t.Context(), head, head, gitDir)
	if x := m.prefetchedIndexOf(gitDir); x == nil || x.count == 0 {
		t.Fatalf("it was not read: %v", x)
	}
	if x := m.prefetchedIndexOf(filepath.Join(gitDir, "worktrees", "other")); x != nil {
		t.Error("it was taken for that of another worktree")
	}
	l.write("new", "x\n")
	l.git("add", "new")
	if x := m.prefetchedIndexOf(gitDir); x != nil {
		t.Error("it is another by now")
	}
}
