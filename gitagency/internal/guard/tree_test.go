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

// newTree opens a tree with a sandbox marker. outside is a directory beside it with a file that must not be touched.
func newTree(t *testing.T) (_ *Tree, outside string) {
	t.Helper()
	dir := tempDir(t)
	outside = mkdir(t, dir, "outside")
	write(t, "secret", outside, "file")
	top := mkdir(t, dir, "tree")
	_, err := Sandbox.Write(top)
	must(t, err)
	tree, err := OpenTree(top)
	must(t, err)
	t.Cleanup(func() { must(t, tree.Close()) })
	return tree, outside
}

func isConfined(err error) bool {
	var confined *ConfinementError
	return errors.As(err, &confined)
}

func TestOpenTreeRefusesSymlinks(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	mkdir(t, dir, "real", "sub")
	link(t, "real", dir, "link")
	for _, path := range []string{"link", "link/sub", "real/../real"} {
		if tree, err := OpenTree(dir + "/" + path); !isConfined(err) {
			t.Errorf("%s: %v, %v", path, tree, err)
		}
	}
	if _, err := OpenTree(filepath.Join(dir, "nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestHasMarkerUsesOpenTree(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	must(t, os.Rename(tree.Path, tree.Path+".moved"))
	mkdir(t, tree.Path)
	ours, err := tree.HasMarker(Sandbox)
	theirs, otherErr := tree.HasMarker(Integration)
	if !ours || theirs || err != nil || otherErr != nil {
		t.Errorf("%v %v, %v %v", ours, err, theirs, otherErr)
	}
	must(t, os.RemoveAll(filepath.Join(tree.Path+".moved", AgencyDir)))
	link(t, "elsewhere", tree.Path+".moved", AgencyDir)
	if ours, err := tree.HasMarker(Sandbox); ours || err != nil {
		t.Errorf("through a link: %v, %v", ours, err)
	}
}

func TestOpenWorkDirStaysInside(t *testing.T) {
	t.Parallel()
	tree, outside := newTree(t)
	mkdir(t, tree.Path, "a", "b c")
	write(t, "x", tree.Path, "file")
	fifo(t, tree.Path, "pipe")
	link(t, "a", tree.Path, "inner")
	link(t, tree.Path+"/a", tree.Path, "absolute")
	link(t, outside, tree.Path, "out")
	link(t, "../outside", tree.Path, "a", "up")
	link(t, "nowhere", tree.Path, "dangling")
	link(t, "loop", tree.Path, "loop")
	link(t, ".agency", tree.Path, "hidden")
	other := link(t, tree.Path, outside, "back")

	for path, want := range map[string]string{
		"": "", ".": "", "a": "/a", "a/b c/": "/a/b c", "./a//b c": "/a/b c", "inner/b c": "/a/b c", "absolute": "/a",
		tree.Path: "", tree.Path + "/": "", tree.Path + "/a": "/a", tree.Path + "//a": "/a", other: "", other + "/a": "/a",
	} {
		dir, at, err := tree.OpenWorkDir(path)
		if err != nil || at != tree.Path+want {
			t.Errorf("%q: %q, %v", path, at, err)
			continue
		}
		here, err := dir.Stat()
		must(t, err)
		there, err := os.Stat(at)
		must(t, err)
		if !os.SameFile(here, there) {
			t.Errorf("%q: the handle and the path are different directories", path)
		}
		must(t, dir.Close())
	}
	for _, path := range append(hostileNames(t),
		"out", "out/x", "a/up", "dangling", "dangling/x", "loop", "hidden", "hidden/x", "inner/../..",
		outside, tree.Path+"/..", tree.Path+"/../outside", tree.Path+"/a/../..", tree.Path+"x", "/", "/etc", other+"/../outside",
		tree.Path+"/.agency", tree.Path+"/.GIT", other+"/.agency", outside+"\x00", tree.Path+"/a\nb",
	) {
		if path == "" {
			continue // the tree itself
		}
		if dir, at, err := tree.OpenWorkDir(path); !isConfined(err) {
			t.Errorf("%q: %v, %q, %v", path, dir, at, err)
		}
	}
	for path, want := range map[string]error{
		"missing": syscall.ENOENT, "a/missing/x": syscall.ENOENT, "file": syscall.ENOTDIR, "file/x": syscall.ENOTDIR, "pipe": syscall.ENOTDIR,
		tree.Path + "/missing": syscall.ENOENT,
	} {
		_, _, err := tree.OpenWorkDir(path)
		if isConfined(err) || !errors.Is(err, want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestResolvePathOfMissingEntries(t *testing.T) {
	t.Parallel()
	tree, outside := newTree(t)
	mkdir(t, tree.Path, "a")
	write(t, "x", tree.Path, "file")
	link(t, "a", tree.Path, "inner")
	link(t, outside, tree.Path, "out")
	for path, want := range map[string]struct {
		inside string
		dir    bool
	}{
		".": {".", true}, "a/": {"a", true}, "inner": {"a", true}, "inner/new/x": {"a/new/x", false},
		"file": {"file", false}, tree.Path + "/new": {"new", false}, tree.Path: {".", true},
	} {
		if inside, dir, err := tree.ResolvePath(path); inside != want.inside || dir != want.dir || err != nil {
			t.Errorf("%s: %q, %v, %v", path, inside, dir, err)
		}
	}
	if _, _, err := tree.ResolvePath("out/new"); !isConfined(err) {
		t.Error(err)
	}
}
