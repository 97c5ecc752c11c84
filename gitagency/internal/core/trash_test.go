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

// Promise: the parts of an overlay are never in a withdrawn tree, where they would pass for late changes; and MarkRemovable
// continues after a kill between its two renames.
func TestMarkRemovableMovesOverlayLast(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	exists := func(names ...string) bool {
		_, err := os.Lstat(filepath.Join(append([]string{dir}, names...)...))
		return err == nil
	}
	for _, name := range []string{".aside/.agency", "overlay/upper"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// A directory in the way of the second rename stands for a kill before it.
	inTheWay := filepath.Join(dir, ".aside", "overlay", "in the way")
	if err := os.MkdirAll(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := MarkRemovable(tree); err == nil {
		t.Fatal("it succeeded")
	}
	if exists(".aside") || !exists(".done", ".agency") || !exists("overlay", "upper") {
		t.Fatal("the tree was not renamed before the overlay")
	}
	if err := os.RemoveAll(filepath.Join(dir, ".done", "overlay")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := MarkRemovable(tree); err != nil {
			t.Fatal(err)
		}
		if exists("overlay") || !exists(".done", "overlay", "upper") {
			t.Fatal("the overlay was not moved")
		}
	}
}
