package core

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Promise: ModifiedSince detects a late write by its ctime also if the writer has set an old mtime, as cp -p does; and a
// rename of the tree does not count as a change.
func TestModifiedSinceUsesCtime(t *testing.T) {
	t.Parallel()
	tree := filepath.Join(t.TempDir(), "tree")
	file, past := filepath.Join(tree, "file"), time.Now().Add(-time.Hour)
	set := func(path string) {
		t.Helper()
		if err := os.Chtimes(path, past, past); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(tree, 0o700); err != nil {
		t.Fatal(err)
	}
	set(tree)
	if err := os.Rename(tree, tree+".aside"); err != nil {
		t.Fatal(err)
	}
	if touched, err := ModifiedSince(tree+".aside", time.Now().Add(-time.Minute)); err != nil || touched {
		t.Errorf("moved: %v, %v", touched, err)
	}
	if err := os.Rename(tree+".aside", tree); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("late"), 0o600); err != nil {
		t.Fatal(err)
	}
	set(file)
	set(tree)
	if touched, err := ModifiedSince(tree, time.Now().Add(-time.Minute)); err != nil || !touched {
		t.Errorf("written: %v, %v", touched, err)
	}
}
