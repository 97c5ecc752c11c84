package upload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

func putFiles(t *testing.T, tree *guard.Tree, files ...File) error {
	t.Helper()
	return Put(t.Context(), targetOf(tree), &undo.Tx{Log: func(err error) { t.Errorf("rollback: %v", err) }}, files, nil)
}

func textFile(path, content string) File { return File{Path: path, Content: []byte(content)} }

func symlinkFile(path, target string) File {
	return File{Path: path, Content: []byte(target), Mode: fs.ModeSymlink}
}

// describeTree lists every entry of a tree with its mode, inode and content.
func describeTree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := os.Lstat(name)
		if err != nil {
			return err
		}
		what := ""
		switch fi.Mode().Type() {
		case 0:
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			what = string(data)
		case fs.ModeSymlink:
			what, err = os.Readlink(name)
		}
		fmt.Fprintf(&b, "%s %v %d %q\n", strings.TrimPrefix(name, dir), fi.Mode(), fi.Sys().(*syscall.Stat_t).Ino, what)
		return err
	}))
	return b.String()
}

func TestPutWritesFilesWithModes(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	mkdir(t, tree.Path, "there")
	must(t, os.Chmod(filepath.Join(tree.Path, "there"), 0o750))
	must(t, putFiles(
		t, tree,
		textFile("./plain", "1"),
		File{Path: "a//run", Content: []byte("2"), Mode: 0o755},
		File{Path: "a/open", Mode: 0o777, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("3")), nil }},
		File{Path: "a/secret", Mode: 0o400},
		File{Path: "a/b", Mode: fs.ModeDir | 0o555},
		textFile("a/b/deep", "4"),
		File{Path: "empty/", Mode: fs.ModeDir},
		File{Path: "there", Mode: fs.ModeDir | 0o700},
		textFile("there/x", "5"),
		symlinkFile("a/l", "../plain"),
		symlinkFile("top", "."),
	))
	for path, want := range map[string]string{
		"plain": "-rw-r--r-- 1", "a": "drwxr-xr-x ", "a/run": "-rwxr-xr-x 2", "a/open": "-rwxrwxrwx 3", "a/secret": "-r-------- ",
		"a/b": "dr-xr-xr-x ", "a/b/deep": "-rw-r--r-- 4", "empty": "drwxr-xr-x ", "there": "drwxr-x--- ", "there/x": "-rw-r--r-- 5", "a/l": "../plain", "top": ".",
	} {
		full := filepath.Join(tree.Path, path)
		fi, err := os.Lstat(full)
		must(t, err)
		got := fi.Mode().String() + " "
		switch fi.Mode().Type() {
		case 0:
			got += readFile(t, full)
		case fs.ModeSymlink:
			got, err = os.Readlink(full)
			must(t, err)
		}
		if got != want {
			t.Errorf("%s is %q, not %q", path, got, want)
		}
	}
	if left := listNames(t, tree.Path, guard.AgencyDir); !slices.Equal(left, []string{guard.Sandbox.Name}) {
		t.Errorf("left in %s: %q", guard.AgencyDir, left)
	}
}

func listNames(t *testing.T, parts ...string) (names []string) {
	t.Helper()
	found, err := os.ReadDir(filepath.Join(parts...))
	must(t, err)
	for _, e := range found {
		names = append(names, e.Name())
	}
	return names
}

func readFile(t *testing.T, parts ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	must(t, err)
	return string(data)
}

func TestPutRefusesBatchWithHostileName(t *testing.T) {
	t.Parallel()
	tree, outside := newTree(t)
	mkdir(t, tree.Path, "sub")
	before, out := describeTree(t, tree.Path), describeTree(t, outside)
	for _, name := range hostileNames(t) {
		for _, file := range []File{textFile(name, "evil"), {Path: name, Mode: fs.ModeDir}, symlinkFile("link", name)} {
			if file.Mode.Type() == fs.ModeSymlink && slices.Contains([]string{"a/..", ".."}, name) {
				continue // refused as well, but not because of the name
			}
			opened := false
			first := File{Path: "sub/first", Open: func() (io.ReadCloser, error) { opened = true; return nil, io.EOF }}
			if err := putFiles(t, tree, first, file, textFile("last", "x")); !isConfined(err) || opened {
				t.Errorf("%q, %v: %v", name, file.Mode, err)
			}
		}
	}
	if after := describeTree(t, tree.Path); after != before {
		t.Errorf("the tree changed:\n%s\n%s", before, after)
	}
	if describeTree(t, outside) != out {
		t.Error("files outside changed")
	}
}

func TestPutReplacesInsteadOfWritingThrough(t *testing.T) {
	t.Parallel()
	tree, outside := newTree(t)
	secret := filepath.Join(outside, "file")
	must(t, os.Link(secret, filepath.Join(tree.Path, "hard")))
	link(t, secret, tree.Path, "link")
	link(t, "nowhere", tree.Path, "dangling")
	write(t, "old", tree.Path, "d", "file")
	link(t, "d", tree.Path, "inner")
	held, err := os.Open(filepath.Join(tree.Path, "d", "file"))
	must(t, err)
	defer held.Close()
	before := describeTree(t, outside)
	must(t, putFiles(t, tree, textFile("hard", "new"), textFile("link", "new"), textFile("dangling", "new"), textFile("inner/file", "new"), symlinkFile("inner/l", "file")))
	if describeTree(t, outside) != before {
		t.Error("files outside changed")
	}
	for _, name := range []string{"hard", "link", "dangling", "d/file"} {
		fi, err := os.Lstat(filepath.Join(tree.Path, name))
		must(t, err)
		if !fi.Mode().IsRegular() || readFile(t, tree.Path, name) != "new" {
			t.Errorf("%s is %v", name, fi.Mode())
		}
	}
	if data, err := io.ReadAll(held); string(data) != "old" || err != nil {
		t.Errorf("the open old file reads %q, %v", data, err)
	}
}

func TestPutReportsObstacles(t *testing.T) {
	t.Parallel()
	tree, outside := newTree(t)
	mkdir(t, tree.Path, "dir", "sub")
	write(t, "x", tree.Path, "file")
	fifo(t, tree.Path, "pipe")
	link(t, outside, tree.Path, "out")
	link(t, "file", tree.Path, "tofile")
	link(t, "dir", tree.Path, "todir")
	link(t, ".agency", tree.Path, "hidden")
	link(t, "nowhere", tree.Path, "dangling")
	before := describeTree(t, tree.Path)
	for _, c := range []struct {
		file File
		want error // nil: a ConfinementError
	}{
		{textFile("dir", ""), syscall.EISDIR},
		{textFile("dir/sub", ""), syscall.EISDIR},
		{textFile("new/", ""), nil},
		{textFile("new/.", ""), syscall.EISDIR},
		{textFile(".", ""), syscall.EISDIR},
		{textFile("file/x", ""), syscall.ENOTDIR},
		{File{Path: "file", Mode: fs.ModeDir}, syscall.ENOTDIR},
		{File{Path: "todir", Mode: fs.ModeDir}, syscall.ENOTDIR},
		{textFile("tofile/x", ""), syscall.ENOTDIR},
		{textFile("pipe", ""), nil},
		{textFile("pipe/x", ""), nil},
		{File{Path: "pipe", Mode: fs.ModeDir}, nil},
		{textFile("out/file", ""), nil},
		{textFile("out/new/file", ""), nil},
		{textFile("hidden/SANDBOX_MARKER", ""), nil},
		{textFile("hidden/new/x", ""), nil},
		{textFile("dangling/x", ""), nil},
		{File{Path: "x", Mode: fs.ModeNamedPipe}, nil},
		{File{Path: "x", Mode: fs.ModeDevice}, nil},
		{File{Path: "x", Mode: fs.ModeSetuid | 0o755}, nil},
		{File{Path: "x", Mode: fs.ModeDir | fs.ModeSticky | 0o777}, nil},
	} {
		err := putFiles(t, tree, textFile("first", "1"), c.file)
		if c.want == nil && !isConfined(err) || c.want != nil && (!errors.Is(err, c.want) || isConfined(err)) {
			t.Errorf("%s %v: %v", c.file.Path, c.file.Mode, err)
		}
	}
	if after := describeTree(t, tree.Path); after != before {
		t.Errorf("the tree changed:\n%s\n%s", before, after)
	}
}

func TestPutRefusesConflictingBatch(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	mkdir(t, tree.Path, "d")
	link(t, "d", tree.Path, "l")
	before := describeTree(t, tree.Path)
	for name, files := range map[string][]File{
		"twice":                                    {textFile("a", ""), textFile("a", "")},
		"twice, in two spellings":                  {textFile("a/b", ""), textFile("./a//b", "")},
		"twice, through a symlink":                 {textFile("l/x", ""), textFile("d/x", "")},
		"a file and its child":                     {textFile("a", ""), textFile("a/b", "")},
		"a child and its parent":                   {textFile("a/b", ""), textFile("a", "")},
		"a directory and a file":                   {{Path: "a", Mode: fs.ModeDir}, textFile("a", "")},
		"a file and a directory":                   {textFile("a", ""), {Path: "a", Mode: fs.ModeDir}},
		"a symlink and a path below it":            {symlinkFile("a", "d"), textFile("a/b", "")},
		"a path below a symlink and the symlink":   {textFile("a/b", ""), symlinkFile("a", "d")},
		"a path below a link and its replacement":  {textFile("l/x", ""), textFile("l", "")},
		"a link's replacement and a path below it": {textFile("l", ""), textFile("l/x", "")},
		"the same symlink twice":                   {symlinkFile("l", "d"), symlinkFile("l", "d")},
	} {
		if err := putFiles(t, tree, files...); err == nil {
			t.Errorf("%s was put", name)
		}
	}
	if after := describeTree(t, tree.Path); after != before {
		t.Errorf("the tree changed:\n%s\n%s", before, after)
	}
	must(t, putFiles(t, tree, File{Path: "a", Mode: fs.ModeDir}, textFile("a/b", ""), File{Path: "a", Mode: fs.ModeDir | 0o700}))
}

func TestPutRefusesLinksOutOfTree(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	mkdir(t, tree.Path, "deep", "er")
	link(t, "deep/er", tree.Path, "short")
	allowed := []File{
		symlinkFile("1", "x"), symlinkFile("2", "./x/y"), symlinkFile("3", "."), symlinkFile("d/4", "../x"), symlinkFile("d/e/5", "../../x"), symlinkFile("d/6", ".."),
		symlinkFile("short/7", "../../x"), symlinkFile("8", "x/"), symlinkFile("9", ".gitignore"), symlinkFile("d/10", "./../x"),
	}
	must(t, putFiles(t, tree, allowed...))
	for _, f := range []File{
		symlinkFile("x", "/etc"), symlinkFile("x", ".."), symlinkFile("x", "../x"), symlinkFile("d/x", "../.."), symlinkFile("d/x", "../../x"), symlinkFile("x", "a/../b"),
		symlinkFile("d/x", "a/../.."), symlinkFile("x", ".git"), symlinkFile("x", ".agency/SANDBOX_MARKER"), symlinkFile("d/x", "../.git/config"), symlinkFile("x", ""),
		symlinkFile("x", "a\nb"), symlinkFile("x", "./../x"), symlinkFile("short/x", "../../../x"), symlinkFile("x", strings.Repeat("./", 600)+"x"), symlinkFile("x", ".//../x"),
		{Path: "x", Mode: fs.ModeSymlink, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("/etc")), nil }},
	} {
		if err := putFiles(t, tree, f); !isConfined(err) || !strings.Contains(err.Error(), `"`+f.Path+`"`) {
			t.Errorf("%s to %q: %v", f.Path, f.Content, err)
		}
	}
	if exists(filepath.Join(tree.Path, "x")) {
		t.Error("a symlink was made")
	}
}

func TestPutRefusesLinksThatLeadOut(t *testing.T) {
	t.Parallel()
	tree, outside := newTree(t)
	mkdir(t, tree.Path, "d", "e")
	for name, target := range map[string]string{
		"out": outside, "up": "..", "d/up": "../..", "in": "d", "back": tree.Path + "/d", "whole": tree.Path, "hidden": ".agency", "loop": "loop", "again": "out",
	} {
		link(t, target, tree.Path, name)
	}
	before := describeTree(t, tree.Path)
	for _, files := range [][]File{
		{symlinkFile("x", "out/file")},
		{symlinkFile("x", "out")},
		{symlinkFile("x", "again/file")},
		{symlinkFile("x", "up")},
		{symlinkFile("x", "up/outside/file")},
		{symlinkFile("x", "in/up/file")},
		{symlinkFile("d/x", "../out/file")},
		{symlinkFile("in/x", "../out")},
		{symlinkFile("x", "back/up/file")},
		{symlinkFile("x", "whole/out/file")},
		{symlinkFile("x", "hidden/SANDBOX_MARKER")},
		{symlinkFile("x", "loop/y")},
		{symlinkFile("x", "y/file"), symlinkFile("y", "out")},
		{symlinkFile("y", "z"), symlinkFile("x", "y/file"), symlinkFile("z", "out")},
		{symlinkFile("n/x", "y/up"), symlinkFile("n/y", "../d")},
		{symlinkFile("x", "y"), symlinkFile("y", "x")},
	} {
		if err := putFiles(t, tree, files...); !isConfined(err) {
			t.Errorf("%v: %v", files, err)
		}
	}
	if after := describeTree(t, tree.Path); after != before {
		t.Errorf("the tree changed:\n%s\n%s", before, after)
	}
	must(t, putFiles(
		t, tree,
		symlinkFile("1", "in/e"), symlinkFile("2", "back/e"), symlinkFile("3", "whole/d"), symlinkFile("4", "1/new"), symlinkFile("5", "out"), textFile("out", "no link any more"),
	))
}

// newMixedTree returns a tree with files, a symlink and a hard link, and a batch that replaces files, adds files and makes
// directories.
func newMixedTree(t *testing.T) (*guard.Tree, []File) {
	t.Helper()
	tree, outside := newTree(t)
	write(t, "old a", tree.Path, "a")
	write(t, "old b", tree.Path, "d", "b")
	write(t, "other", tree.Path, "d", "other")
	write(t, "old c", tree.Path, "d", "e", "c")
	link(t, filepath.Join(outside, "file"), tree.Path, "d", "l")
	must(t, os.Link(filepath.Join(tree.Path, "d", "b"), filepath.Join(outside, "hard")))
	return tree, []File{
		textFile("a", "new a"), textFile("d/b", "new b"), textFile("d/e/c", "new c"), textFile("d/l", "new l"), textFile("d/new/x", "x"),
		{Path: "fresh/narrow", Mode: fs.ModeDir | 0o500},
		textFile("fresh/narrow/y", "y"), textFile("z", "z"), symlinkFile("fresh/link", "../a"),
	}
}

// faultPoints returns the fault points of putting the batch of newMixedTree, in order.
func faultPoints(t *testing.T) (found []string) {
	t.Helper()
	tree, files := newMixedTree(t)
	tx := &undo.Tx{Fault: func(_ context.Context, point string) error { found = append(found, point); return nil }}
	must(t, Put(t.Context(), targetOf(tree), tx, files, nil))
	return found
}

func TestPutFailureAtAnyStepRestoresTree(t *testing.T) {
	t.Parallel()
	all := faultPoints(t)
	if len(all) < 20 {
		t.Fatalf("only the fault points %q", all)
	}
	tree, files := newMixedTree(t)
	before := describeTree(t, path.Dir(tree.Path))
	for _, point := range all {
		for _, cancels := range []bool{false, true} {
			if cancels && strings.HasPrefix(point, "done:") {
				continue // too late to cancel
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			purpose := errors.New("on purpose")
			tx := &undo.Tx{Log: func(err error) { t.Errorf("%s: %v", point, err) }, Fault: func(_ context.Context, at string) error {
				if at == point && cancels {
					cancel(purpose)
					return nil
				}
				if at == point {
					return purpose
				}
				return nil
			}}
			err := Put(ctx, targetOf(tree), tx, files, nil)
			cancel(nil)
			if !errors.Is(err, purpose) {
				t.Fatalf("%s, %v: %v", point, cancels, err)
			}
			if after := describeTree(t, path.Dir(tree.Path)); after != before {
				t.Fatalf("%s, %v: the tree changed:\n%s\n%s", point, cancels, before, after)
			}
		}
	}
}

// TestPutRollbackFollowsMovedDirectory renames a directory that files were put into before the rollback.
func TestPutRollbackFollowsMovedDirectory(t *testing.T) {
	t.Parallel()
	tree, files := newMixedTree(t)
	d, aside := filepath.Join(tree.Path, "d"), filepath.Join(tree.Path, "aside")
	before := describeTree(t, path.Dir(tree.Path))
	purpose := errors.New("on purpose")
	tx := &undo.Tx{Log: func(err error) { t.Error(err) }, Fault: func(_ context.Context, at string) error {
		if at != "place d/new:before" {
			return nil
		}
		must(t, os.Rename(d, aside))
		must(t, os.Symlink(filepath.Join(path.Dir(tree.Path), "outside"), d))
		return purpose
	}}
	if err := Put(t.Context(), targetOf(tree), tx, files, nil); !errors.Is(err, purpose) {
		t.Fatal(err)
	}
	must(t, os.Remove(d))
	must(t, os.Rename(aside, d))
	if after := describeTree(t, path.Dir(tree.Path)); after != before {
		t.Errorf("the tree changed:\n%s\n%s", before, after)
	}
}

// TestPutFailsWhenDirectoryIsMovedAway moves a directory out of the tree while files are put into it.
func TestPutFailsWhenDirectoryIsMovedAway(t *testing.T) {
	t.Parallel()
	for name, instead := range map[string]func(d string) error{
		"nothing":   func(string) error { return nil },
		"a link":    func(d string) error { return os.Symlink("../outside", d) },
		"a new one": func(d string) error { return os.MkdirAll(filepath.Join(d, "e"), 0o755) },
	} {
		tree, files := newMixedTree(t)
		d, away := filepath.Join(tree.Path, "d"), filepath.Join(path.Dir(tree.Path), "away")
		before := describeTree(t, path.Dir(tree.Path))
		tx := &undo.Tx{Log: func(err error) { t.Errorf("%s: %v", name, err) }, Fault: func(_ context.Context, at string) error {
			if at != "done:before" {
				return nil
			}
			return errors.Join(os.Rename(d, away), instead(d))
		}}
		if err := Put(t.Context(), targetOf(tree), tx, files, nil); err == nil || isConfined(err) {
			t.Errorf("%s: %v", name, err)
		}
		must(t, os.RemoveAll(d))
		must(t, os.Rename(away, d))
		if after := describeTree(t, path.Dir(tree.Path)); after != before {
			t.Errorf("%s: the tree changed:\n%s\n%s", name, before, after)
		}
	}
}

// TestPutKeepsFilesCreatedMeanwhile creates a file at a destination after Put has checked it: the file is kept.
func TestPutKeepsFilesCreatedMeanwhile(t *testing.T) {
	t.Parallel()
	for point, mine := range map[string]string{"place z:before": "z", "place d/new:before": "d/new", "place a:before": "a/mine"} {
		tree, files := newMixedTree(t)
		tx := &undo.Tx{Log: func(err error) { t.Errorf("%s: %v", point, err) }, Fault: func(_ context.Context, at string) error {
			if at == point {
				if mine == "a/mine" {
					must(t, os.Remove(filepath.Join(tree.Path, "a")))
				}
				write(t, "mine", tree.Path, mine)
			}
			return nil
		}}
		if err := Put(t.Context(), targetOf(tree), tx, files, nil); err == nil {
			t.Errorf("%s: Put succeeded", point)
		}
		if readFile(t, tree.Path, mine) != "mine" || readFile(t, tree.Path, "d", "b") != "old b" || len(listNames(t, tree.Path, guard.AgencyDir)) != 1 {
			t.Errorf("%s: %q", point, listNames(t, tree.Path))
		}
	}
}

// killedPut runs Put up to a fault point and ends its goroutine there, as a killed process does: nothing is rolled back,
// and only descriptors and locks are released.
func killedPut(t *testing.T, tree *guard.Tree, files []File, point string) {
	t.Helper()
	gone := make(chan bool)
	go func() {
		defer close(gone)
		tx := &undo.Tx{Fault: func(_ context.Context, at string) error {
			if at == point {
				runtime.Goexit()
			}
			return nil
		}}
		t.Errorf("%s was not reached: %v", point, Put(t.Context(), targetOf(tree), tx, files, nil))
	}()
	<-gone
}

func TestKilledPutIsUndoneByRecover(t *testing.T) {
	t.Parallel()
	tree, files := newMixedTree(t)
	before := describeTree(t, path.Dir(tree.Path))
	all := faultPoints(t)
	for _, point := range all[:len(all)-1] {
		killedPut(t, tree, files, point)
		must(t, Recover(t.Context(), targetOf(tree), -1))
		if after := describeTree(t, path.Dir(tree.Path)); after != before {
			t.Fatalf("%s: the tree changed:\n%s\n%s", point, before, after)
		}
		// The next put recovers by itself.
		killedPut(t, tree, files, point)
		must(t, putFiles(t, tree, textFile("next", "n")))
		must(t, os.Remove(filepath.Join(tree.Path, "next")))
		if after := describeTree(t, path.Dir(tree.Path)); after != before {
			t.Fatalf("%s: the tree changed:\n%s\n%s", point, before, after)
		}
	}
	killedPut(t, tree, files, all[len(all)-1]) // complete; only the stage is left
	must(t, Recover(t.Context(), targetOf(tree), -1))
	if readFile(t, tree.Path, "a") != "new a" || readFile(t, tree.Path, "d", "new", "x") != "x" || len(listNames(t, tree.Path, guard.AgencyDir)) != 1 {
		t.Error("the completed put was undone")
	}
}

// TestRecoverDoesNotUndoCompletedPut removes part of the stage, as a process killed during cleanup does.
func TestRecoverDoesNotUndoCompletedPut(t *testing.T) {
	t.Parallel()
	tree, files := newMixedTree(t)
	killedPut(t, tree, files, "done:after")
	stage := filepath.Join(tree.Path, guard.AgencyDir, listNames(t, tree.Path, guard.AgencyDir)[1])
	for _, name := range listNames(t, stage) {
		if name != oldDirName {
			must(t, os.RemoveAll(filepath.Join(stage, name)))
		}
	}
	must(t, os.Remove(filepath.Join(tree.Path, "a")))
	if found, err := FindInterrupted(t.Context(), targetOf(tree)); err != nil || len(found) != 1 || found[0].HoldsReplaced {
		t.Errorf("%+v, %v", found, err)
	}
	if n, dirs, err := RescueReplaced(t.Context(), targetOf(tree)); n != 0 || len(dirs) != 0 || err != nil {
		t.Errorf("%d, %q, %v", n, dirs, err)
	}
	must(t, Recover(t.Context(), targetOf(tree), -1))
	if exists(filepath.Join(tree.Path, "a")) || exists(stage) || readFile(t, tree.Path, "d", "b") != "new b" {
		t.Errorf("left: %q", listNames(t, tree.Path))
	}
}

func TestRecoverKeepsLaterChanges(t *testing.T) {
	t.Parallel()
	tree, files := newMixedTree(t)
	killedPut(t, tree, files, "done:before")
	write(t, "mine", tree.Path, "fresh", "mine")              // in a directory of the put
	write(t, "changed", tree.Path, "d", "b")                  // a file of the put, changed
	must(t, os.Remove(filepath.Join(tree.Path, "a")))         // a file of the put, replaced
	write(t, "mine too", tree.Path, "a")                      //
	must(t, os.RemoveAll(filepath.Join(tree.Path, "d", "e"))) // the directory of a replaced file is gone
	must(t, Recover(t.Context(), targetOf(tree), -1))
	for name, want := range map[string]string{"fresh/mine": "mine", "d/b": "changed", "a": "mine too", "d/other": "other"} {
		if got := readFile(t, tree.Path, name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	for _, name := range []string{"z", "fresh/narrow", "fresh/link", "d/new"} {
		if exists(filepath.Join(tree.Path, name)) {
			t.Errorf("%s is still there", name)
		}
	}
	if len(listNames(t, tree.Path, guard.AgencyDir)) != 1 {
		t.Error("the stage is still there")
	}
}

func TestRecoverWithoutStage(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	must(t, Recover(t.Context(), targetOf(tree), -1))
	must(t, os.RemoveAll(filepath.Join(tree.Path, guard.AgencyDir)))
	must(t, Recover(t.Context(), targetOf(tree), -1))
	write(t, "", tree.Path, guard.AgencyDir)
	must(t, Recover(t.Context(), targetOf(tree), -1))
}

func TestRecoverSparesRunningPut(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	tx := &undo.Tx{Fault: func(_ context.Context, at string) error {
		if at != "stage:after" {
			return nil
		}
		if err := Recover(t.Context(), targetOf(tree), -1); err != nil {
			return err
		}
		return putFiles(t, tree, textFile("b", "2"))
	}}
	must(t, Put(t.Context(), targetOf(tree), tx, []File{textFile("a", "1")}, nil))
	if readFile(t, tree.Path, "a") != "1" || readFile(t, tree.Path, "b") != "2" {
		t.Error("one of the puts is missing")
	}
}

func TestPutReportsSourceErrors(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	before := describeTree(t, tree.Path)
	broken := errors.New("broken")
	if err := putFiles(t, tree, textFile("a", ""), File{Path: "b", Open: func() (io.ReadCloser, error) { return nil, broken }}); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := putFiles(t, tree, textFile("a", ""), File{Path: "b", Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader("x"), failingReader{broken})), nil
	}}); !errors.Is(err, broken) {
		t.Error(err)
	}
	late := errors.New("too late")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, late)
	defer cancel()
	r, w := io.Pipe()
	defer w.Close()
	if err := Put(ctx, targetOf(tree), &undo.Tx{}, []File{{Path: "b", Open: func() (io.ReadCloser, error) { return r, nil }}}, nil); !errors.Is(err, late) {
		t.Error(err)
	}
	if after := describeTree(t, tree.Path); after != before {
		t.Errorf("the tree changed:\n%s\n%s", before, after)
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

func TestConcurrentPutsAreAtomic(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 5 {
				var files []File
				for j := range 20 {
					files = append(files, textFile(fmt.Sprintf("shared/d%d/f%d", j%3, j), fmt.Sprint(i)), textFile(fmt.Sprintf("own%d/f%d", i, j), ""))
				}
				other, err := guard.OpenTree(tree.Path) // own handles, as in another process
				if err == nil {
					err = errors.Join(Put(t.Context(), targetOf(other), &undo.Tx{}, files, nil), other.Close())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	contents := map[string]bool{}
	for j := range 20 {
		contents[readFile(t, tree.Path, fmt.Sprintf("shared/d%d/f%d", j%3, j))] = true
	}
	if len(contents) != 1 {
		t.Errorf("files of several puts: %v", contents)
	}
	if left := listNames(t, tree.Path, guard.AgencyDir); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
}

// FuzzPut puts a random batch into a small tree: the batch is complete, or the tree is unchanged.
func FuzzPut(f *testing.F) {
	f.Add("a\nb/c\nd/>x", 3)
	f.Add("l>d\nl/x", 0)
	f.Add("d/l>..\nd/l/../x", 0)
	f.Add("out/x\nin/y\nin/>", 0)
	f.Add("file\nfile/x\nd/\nd", 1)
	f.Add("t\nin/y\nin", 0)
	f.Add("l>out/file\nm>l", 0)
	f.Add("in/l>../../x\n./d//file\npipe\n.g\u200cit", 0)
	f.Fuzz(func(t *testing.T, batch string, fail int) {
		if len(batch) > 300 {
			t.Skip()
		}
		tree, outside := newTree(t)
		write(t, "old", tree.Path, "file")
		write(t, "old", tree.Path, "d", "file")
		link(t, "d", tree.Path, "in")
		link(t, outside, tree.Path, "out")
		fifo(t, tree.Path, "pipe")
		before, out := describeTree(t, tree.Path), describeTree(t, outside)
		var files []File
		for line := range strings.SplitSeq(batch, "\n") {
			switch name, target, isLink := strings.Cut(line, ">"); {
			case isLink:
				files = append(files, symlinkFile(name, target))
			case strings.HasSuffix(name, "/"):
				files = append(files, File{Path: name, Mode: fs.ModeDir})
			default:
				files = append(files, textFile(name, "new"))
			}
		}
		step := 0
		tx := &undo.Tx{Log: func(err error) { t.Error(err) }, Fault: func(context.Context, string) error {
			if step++; step == fail {
				return errors.New("on purpose")
			}
			return nil
		}}
		err := Put(t.Context(), targetOf(tree), tx, files, nil)
		if describeTree(t, outside) != out {
			t.Fatalf("%q: files outside changed", batch)
		}
		after := describeTree(t, tree.Path)
		if err != nil {
			if after != before {
				t.Errorf("%q, %v: the tree changed:\n%s\n%s", batch, err, before, after)
			}
			return
		}
		for _, file := range files {
			full := filepath.Join(tree.Path, file.Path)
			fi, err := os.Lstat(full)
			must(t, err)
			if fi.Mode().Type() != file.Mode.Type() {
				t.Errorf("%q is %v", file.Path, fi.Mode())
			}
			if file.Mode.IsRegular() {
				data, err := os.ReadFile(full)
				must(t, err)
				if !bytes.Equal(data, file.Content) {
					t.Errorf("%q holds %q", file.Path, data)
				}
			}
			if file.Mode.Type() == fs.ModeSymlink {
				if real, err := filepath.EvalSymlinks(full); err == nil && real != tree.Path && !guard.Contains(tree.Path, real) {
					t.Errorf("%q leads to %q", file.Path, real)
				}
			}
		}
	})
}
