package core

import (
	"errors"
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

func TestEntryModifiedSinceIgnoresOtherLinksOfTheIndex(t *testing.T) {
	dir := t.TempDir()
	entry, layer := filepath.Join(dir, "entry"), filepath.Join(dir, "layer-index")
	index, past := filepath.Join(entry, "index"), time.Now().Add(-time.Hour)
	check := func(what string, want bool) {
		t.Helper()
		if err := os.Chtimes(entry, past, past); err != nil {
			t.Fatal(err)
		}
		if touched, err := EntryModifiedSince(entry, time.Now().Add(-time.Minute)); err != nil || touched != want {
			t.Errorf("%s: got %v, %v; want %v", what, touched, err, want)
		}
	}
	if err := errors.Join(os.Mkdir(entry, 0o700), os.WriteFile(layer, []byte("index"), 0o600), os.Chtimes(layer, past, past), os.Link(layer, index)); err != nil {
		t.Fatal(err)
	}
	check("linked", false)
	if err := os.Link(layer, filepath.Join(dir, "other")); err != nil {
		t.Fatal(err)
	}
	check("linked by another sandbox", false)
	if err := errors.Join(os.WriteFile(index+".lock", []byte("new"), 0o600), os.Chtimes(index+".lock", past, past), os.Rename(index+".lock", index)); err != nil {
		t.Fatal(err)
	}
	check("replaced", true)
}
