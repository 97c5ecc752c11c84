package guard

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func openTop(t *testing.T, tree *Tree) *DirHandle {
	t.Helper()
	top, err := tree.OpenTop()
	must(t, err)
	t.Cleanup(func() { must(t, top.Close()) })
	return top
}

func TestDirHandleFollowsNoLinkAndTakesNoPath(t *testing.T) {
	t.Parallel()
	tree, outside := newTree(t)
	mkdir(t, tree.Path, "a", "b")
	write(t, "x", tree.Path, "a", "file")
	link(t, "a", tree.Path, "in")
	link(t, outside, tree.Path, "out")
	fifo(t, tree.Path, "pipe")
	top := openTop(t, tree)
	for _, path := range []string{".", "a", "a/b"} {
		f, err := top.OpenPath(path)
		if err != nil || f.Path != path {
			t.Fatalf("%s: %v, %v", path, f, err)
		}
		must(t, f.Close())
	}
	for _, path := range []string{"in", "in/b", "out", "a/file", "a/file/x"} {
		if _, err := top.OpenPath(path); !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := top.OpenDir("pipe"); !isConfined(err) {
		t.Error(err)
	}
	for _, name := range []string{"", "..", "a/b", "a\x00"} {
		_, enterErr := top.OpenDir(name)
		_, createErr := top.CreateFile(name, 0o600)
		for _, err := range []error{enterErr, createErr, top.Remove(name), top.Symlink("x", name), top.GrantOwnerAccess(name)} {
			if !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
	for _, name := range []string{"out", "in"} {
		if _, err := top.OpenFile(name); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	if _, err := top.OpenFile("pipe"); !isConfined(err) {
		t.Error(err)
	}
}

func TestRemoveAllHandlesDeepTreesAndLinks(t *testing.T) {
	t.Parallel()
	tree, outside := newTree(t)
	link(t, outside, tree.Path, "a", "out")
	write(t, "x", tree.Path, "a", strings.Repeat("d/", 3*maxOpenDirs), "file")
	write(t, "mine", tree.Path, "a.1", "file") // RemoveAll names moved directories like this
	must(t, os.Chmod(filepath.Join(tree.Path, "a", strings.Repeat("d/", maxOpenDirs+1)), 0))
	must(t, os.Chmod(filepath.Join(tree.Path, "a", "d"), 0o500))
	top := openTop(t, tree)
	must(t, top.RemoveAll("a"))
	must(t, top.RemoveAll("missing"))
	names, err := top.Names()
	must(t, err)
	if len(names) != 2 || !exists(filepath.Join(tree.Path, "a.1", "file")) || !exists(filepath.Join(outside, "file")) {
		t.Errorf("left: %q", names)
	}
}

func TestWithWriteAccessRestoresMode(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	dir := mkdir(t, tree.Path, "d")
	must(t, os.Chmod(dir, fs.ModeSetgid|0o555))
	in, err := openTop(t, tree).OpenDir("d")
	must(t, err)
	defer in.Close()
	tries := 0
	must(t, in.WithWriteAccess(func() error {
		if tries++; tries == 1 {
			return fs.ErrPermission // returned here because root never gets it from the kernel
		}
		return nil
	}))
	if fi, err := os.Stat(dir); err != nil || fi.Mode() != fs.ModeDir|fs.ModeSetgid|0o555 || tries != 2 {
		t.Errorf("%v, %v, %d", fi.Mode(), err, tries)
	}
}

// A handle opens files and lists directories without permissions, and leaves the permissions of a file as they were.
func TestDirHandleOpensWithoutPermissions(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "list-only"), 0o700),
		os.WriteFile(filepath.Join(dir, "list-only", "file"), []byte("x"), 0o200),
		os.Symlink("list-only/file", filepath.Join(dir, "link")),
		os.Chmod(filepath.Join(dir, "list-only"), 0o400),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	tree, err := OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	top, err := tree.OpenTop()
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	if _, err := top.OpenFileForce("link"); err == nil {
		t.Error("a symbolic link was followed")
	}
	if target, err := top.Readlink("link"); err != nil || target != "list-only/file" {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	below, err := top.OpenDirForce("list-only")
	if err != nil {
		t.Fatal(err)
	}
	defer below.Close()
	if fi, err := below.Stat(); err != nil || fi.Mode.Perm() != 0o400 {
		t.Errorf("stat: %+v, %v", fi, err)
	}
	if err := below.Chmod(0o700); err != nil {
		t.Fatal(err)
	}
	file, err := below.OpenFileForce("file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if fi, err := below.Lstat("file"); err != nil || fi.Mode.Perm() != 0o200 || fi.Size != 1 {
		t.Errorf("the file is %+v, %v", fi, err)
	}
	if err := below.Link("file", top, "same"); err != nil {
		t.Error(err)
	}
	if err := below.Link("file", top, "../outside"); err == nil {
		t.Error("a hard link was made outside")
	}
	if err := top.Mkfifo("pipe", 0o600); err != nil {
		t.Error(err)
	}
	if _, err := top.OpenFileForce("pipe"); err == nil {
		t.Error("a named pipe was opened")
	}
}
