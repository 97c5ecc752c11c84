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

func put(t *testing.T, tree *guard.Tree, files ...File) error {
	t.Helper()
	return Put(t.Context(), tree, &undo.Tx{Log: func(err error) { t.Errorf("rollback: %v", err) }}, files, nil)
}

func text(path, content string) File { return File{Path: path, Content: []byte(content)} }

func symlink(path, target string) File {
	return File{Path: path, Content: []byte(target), Mode: fs.ModeSymlink}
}

// describeTree lists every entry of a tree with its mode, inode and content.
func state(t *testing.T, dir string) string {
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

func TestWhatIsPutIsThereWithItsModes(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	mkdir(t, tree.Path, "there")
	must(t, os.Chmod(filepath.Join(tree.Path, "there"), 0o750))
	must(t, put(
		t, tree,
		text("./plain", "1"),
		File{Path: "a//run", Content: []byte("2"), Mode: 0o755},
		File{Path: "a/open", Mode: 0o777, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("3")), nil }},
		File{Path: "a/secret", Mode: 0o400},
		File{Path: "a/b", Mode: fs.ModeDir | 0o555},
		text("a/b/deep", "4"),
		File{Path: "empty/", Mode: fs.ModeDir},
		File{Path: "there", Mode: fs.ModeDir | 0o700},
		text("there/x", "5"),
		symlink("a/l", "../plain"),
		symlink("top", "."),
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
			got += read(t, full)
		case fs.ModeSymlink:
			got, err = os.Readlink(full)
			must(t, err)
		}
		if got != want {
			t.Errorf("%s is %q, not %q", path, got, want)
		}
	}
	if left := entries(t, tree.Path, guard.AgencyDir); !slices.Equal(left, []string{guard.Sandbox.Name}) {
		t.Errorf("left in %s: %q", guard.AgencyDir, left)
	}
}

func entries(t *testing.T, parts ...string) (names []string) {
	t.Helper()
	found, err := os.ReadDir(filepath.Join(parts...))
	must(t, err)
	for _, e := range found {
		names = append(names, e.Name())
	}
	return names
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	must(t, err)
	return string(data)
}

func TestOneHostileNameAmongOthersAndNothingIsWritten(t *testing.T) {
	t.Parallel()
	tree, outside := newTree(t)
	mkdir(t, tree.Path, "sub")
	before, out := state(t, tree.Path), state(t, outside)
	for _, name := range hostileNames(t) {
		for _, file := range []File{text(name, "evil"), {Path: name, Mode: fs.ModeDir}, symlink("link", name)} {
			if file.Mode.Type() == fs.ModeSymlink && slices.Contains([]string{"a/..", ".."}, name) {
				continue // refused as well, but not because of the name
			}
			opened := false
			first := File{Path: "sub/first", Open: func() (io.ReadCloser, error) { opened = true; return nil, io.EOF }}
			if err := put(t, tree, first, file, text("last", "x")); !isConfined(err) || opened {
				t.Errorf("%q, %v: %v", name, file.Mode, err)
			}
		}
	}
	if after := state(t, tree.Path); after != before {
		t.Errorf("the tree changed:\n%s\n%s", before, after)
	}
	if state(t, outside) != out {
		t.Error("files outside changed")
	}
}

func TestWhatIsThereIsReplacedAndNeverWrittenThrough(t *testing.T) {
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
	before := state(t, outside)
	must(t, put(t, tree, text("hard", "new"), text("link", "new"), text("dangling", "new"), text("inner/file", "new"), symlink("inner/l", "file")))
	if state(t, outside) != before {
		t.Error("files outside changed")
	}
	for _, name := range []string{"hard", "link", "dangling", "d/file"} {
		fi, err := os.Lstat(filepath.Join(tree.Path, name))
		must(t, err)
		if !fi.Mode().IsRegular() || read(t, tree.Path, name) != "new" {
			t.Errorf("%s is %v", name, fi.Mode())
		}
	}
	if data, err := io.ReadAll(held); string(data) != "old" || err != nil {
		t.Errorf("the open old file reads %q, %v", data, err)
	}
}

func TestWhatIsInTheWayIsSaidAndLeftAlone(t *testing.T) {
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
	before := state(t, tree.Path)
	for _, c := range []struct {
		file File
		want error // nil: a ConfinementError
	}{
		{text("dir", ""), syscall.EISDIR},
		{text("dir/sub", ""), syscall.EISDIR},
		{text("new/", ""), nil},
		{text("new/.", ""), syscall.EISDIR},
		{text(".", ""), syscall.EISDIR},
		{text("file/x", ""), syscall.ENOTDIR},
		{File{Path: "file", Mode: fs.ModeDir}, syscall.ENOTDIR},
		{File{Path: "todir", Mode: fs.ModeDir}, syscall.ENOTDIR},
		{text("tofile/x", ""), syscall.ENOTDIR},
		{text("pipe", ""), nil},
		{text("pipe/x", ""), nil},
		{File{Path: "pipe", Mode: fs.ModeDir}, nil},
		{text("out/file", ""), nil},
		{text("out/new/file", ""), nil},
		{text("hidden/SANDBOX_MARKER", ""), nil},
		{text("hidden/new/x", ""), nil},
		{text("dangling/x", ""), nil},
		{File{Path: "x", Mode: fs.ModeNamedPipe}, nil},
		{File{Path: "x", Mode: fs.ModeDevice}, nil},
		{File{Path: "x", Mode: fs.ModeSetuid | 0o755}, nil},
		{File{Path: "x", Mode: fs.ModeDir | fs.ModeSticky | 0o777}, nil},
	} {
		err := put(t, tree, text("first", "1"), c.file)
		if c.want == nil && !isConfined(err) || c.want != nil && (!errors.Is(err, c.want) || isConfined(err)) {
			t.Errorf("%s %v: %v", c.file.Path, c.file.Mode, err)
		}
	}
	if after := state(t, tree.Path); after != before {
		t.Errorf("the tree changed:\n%s\n%s", before, after)
	}
}

func TestABatchMustNotBeInItsOwnWay(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	mkdir(t, tree.Path, "d")
	link(t, "d", tree.Path, "l")
	before := state(t, tree.Path)
	for name, files := range map[string][]File{
		"twice":                                    {text("a", ""), text("a", "")},
		"twice, in two spellings":                  {text("a/b", ""), text("./a//b", "")},
		"twice, through a symlink":                 {text("l/x", ""), text("d/x", "")},
		"a file and its child":                     {text("a", ""), text("a/b", "")},
		"a child and its parent":                   {text("a/b", ""), text("a", "")},
		"a directory and a file":                   {{Path: "a", Mode: fs.ModeDir}, text("a", "")},
		"a file and a directory":                   {text("a", ""), {Path: "a", Mode: fs.ModeDir}},
		"a symlink and a path below it":            {symlink("a", "d"), text("a/b", "")},
		"a path below a symlink and the symlink":   {text("a/b", ""), symlink("a", "d")},
		"a path below a link and its replacement":  {text("l/x", ""), text("l", "")},
		"a link's replacement and a path below it": {text("l", ""), text("l/x", "")},
		"the same symlink twice":                   {symlink("l", "d"), symlink("l", "d")},
	} {
		if err := put(t, tree, files...); err == nil {
			t.Errorf("%s was put", name)
		}
	}
	if after := state(t, tree.Path); after != before {
		t.Errorf("the tree changed:\n%s\n%s", before, after)
	}
	must(t, put(t, tree, File{Path: "a", Mode: fs.ModeDir}, text("a/b", ""), File{Path: "a", Mode: fs.ModeDir | 0o700}))
}

func TestLinksStayInside(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	mkdir(t, tree.Path, "deep", "er")
	link(t, "deep/er", tree.Path, "short")
	allowed := []File{
		symlink("1", "x"), symlink("2", "./x/y"), symlink("3", "."), symlink("d/4", "../x"), symlink("d/e/5", "../../x"), symlink("d/6", ".."),
		symlink("short/7", "../../x"), symlink("8", "x/"), symlink("9", ".gitignore"), symlink("d/10", "./../x"),
	}
	must(t, put(t, tree, allowed...))
	for _, f := range []File{
		symlink("x", "/etc"), symlink("x", ".."), symlink("x", "../x"), symlink("d/x", "../.."), symlink("d/x", "../../x"), symlink("x", "a/../b"),
		symlink("d/x", "a/../.."), symlink("x", ".git"), symlink("x", ".agency/SANDBOX_MARKER"), symlink("d/x", "../.git/config"), symlink("x", ""),
		symlink("x", "a\nb"), symlink("x", "./../x"), symlink("short/x", "../../../x"), symlink("x", strings.Repeat("./", 600)+"x"), symlink("x", ".//../x"),
		{Path: "x", Mode: fs.ModeSymlink, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("/etc")), nil }},
	} {
		if err := put(t, tree, f); !isConfined(err) || !strings.Contains(err.Error(), `"`+f.Path+`"`) {
			t.Errorf("%s to %q: %v", f.Path, f.Content, err)
		}
	}
	if exists(filepath.Join(tree.Path, "x")) {
		t.Error("a symlink was made")
	}
}

func TestLinksStayInsideOnTheWholeWayTheyLead(t *testing.T) {
	t.Parallel()
	tree, outside := newTree(t)
	mkdir(t, tree.Path, "d", "e")
	for name, target := range map[string]string{
		"out": outside, "up": "..", "d/up": "../..", "in": "d", "back": tree.Path + "/d", "whole": tree.Path, "hidden": ".agency", "loop": "loop", "again": "out",
	} {
		link(t, target, tree.Path, name)
	}
	before := state(t, tree.Path)
	for _, files := range [][]File{
		{symlink("x", "out/file")},
		{symlink("x", "out")},
		{symlink("x", "again/file")},
		{symlink("x", "up")},
		{symlink("x", "up/outside/file")},
		{symlink("x", "in/up/file")},
		{symlink("d/x", "../out/file")},
		{symlink("in/x", "../out")},
		{symlink("x", "back/up/file")},
		{symlink("x", "whole/out/file")},
		{symlink("x", "hidden/SANDBOX_MARKER")},
		{symlink("x", "loop/y")},
		{symlink("x", "y/file"), symlink("y", "out")},
		{symlink("y", "z"), symlink("x", "y/file"), symlink("z", "out")},
		{symlink("n/x", "y/up"), symlink("n/y", "../d")},
		{symlink("x", "y"), symlink("y", "x")},
	} {
		if err := put(t, tree, files...); !isConfined(err) {
			t.Errorf("%v: %v", files, err)
		}
	}
	if after := state(t, tree.Path); after != before {
		t.Errorf("the tree changed:\n%s\n%s", before, after)
	}
	must(t, put(
		t, tree,
		symlink("1", "in/e"), symlink("2", "back/e"), symlink("3", "whole/d"), symlink("4", "1/new"), symlink("5", "out"), text("out", "no link any more"),
	))
}

// newMixedTree returns a tree with files, a symlink and a hard link, and a batch that replaces files, adds files and makes
// directories.
func crowded(t *testing.T) (*guard.Tree, []File) {
	t.Helper()
	tree, outside := newTree(t)
	write(t, "old a", tree.Path, "a")
	write(t, "old b", tree.Path, "d", "b")
	write(t, "other", tree.Path, "d", "other")
	write(t, "old c", tree.Path, "d", "e", "c")
	link(t, filepath.Join(outside, "file"), tree.Path, "d", "l")
	must(t, os.Link(filepath.Join(tree.Path, "d", "b"), filepath.Join(outside, "hard")))
	return tree, []File{
		text("a", "new a"), text("d/b", "new b"), text("d/e/c", "new c"), text("d/l", "new l"), text("d/new/x", "x"),
		{Path: "fresh/narrow", Mode: fs.ModeDir | 0o500},
		text("fresh/narrow/y", "y"), text("z", "z"), symlink("fresh/link", "../a"),
	}
}

// faultPoints returns the fault points of putting the batch of newMixedTree, in order.
func points(t *testing.T) (found []string) {
	t.Helper()
	tree, files := crowded(t)
	tx := &undo.Tx{Fault: func(_ context.Context, point string) error { found = append(found, point); return nil }}
	must(t, Put(t.Context(), tree, tx, files, nil))
	return found
}

func TestAPutThatFailsOrIsCancelledAtAnyStepLeavesTheTreeAsItWas(t *testing.T) {
	t.Parallel()
	all := points(t)
	if len(all) < 20 {
		t.Fatalf("only the fault points %q", all)
	}
	tree, files := crowded(t)
	before := state(t, path.Dir(tree.Path))
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
			err := Put(ctx, tree, tx, files, nil)
			cancel(nil)
			if !errors.Is(err, purpose) {
				t.Fatalf("%s, %v: %v", point, cancels, err)
			}
			if after := state(t, path.Dir(tree.Path)); after != before {
				t.Fatalf("%s, %v: the tree changed:\n%s\n%s", point, cancels, before, after)
			}
		}
	}
}

// TestPutRollbackFollowsMovedDirectory renames a directory that files were put into before the rollback.
func TestAPutIsTakenBackFromWhereverItsDirectoriesWent(t *testing.T) {
	t.Parallel()
	tree, files := crowded(t)
	d, aside := filepath.Join(tree.Path, "d"), filepath.Join(tree.Path, "aside")
	before := state(t, path.Dir(tree.Path))
	purpose := errors.New("on purpose")
	tx := &undo.Tx{Log: func(err error) { t.Error(err) }, Fault: func(_ context.Context, at string) error {
		if at != "place d/new:before" {
			return nil
		}
		must(t, os.Rename(d, aside))
		must(t, os.Symlink(filepath.Join(path.Dir(tree.Path), "outside"), d))
		return purpose
	}}
	if err := Put(t.Context(), tree, tx, files, nil); !errors.Is(err, purpose) {
		t.Fatal(err)
	}
	must(t, os.Remove(d))
	must(t, os.Rename(aside, d))
	if after := state(t, path.Dir(tree.Path)); after != before {
		t.Errorf("the tree changed:\n%s\n%s", before, after)
	}
}

// TestPutFailsWhenDirectoryIsMovedAway moves a directory out of the tree while files are put into it.
func TestAPutIntoADirectoryThatIsMovedAwayIsNone(t *testing.T) {
	t.Parallel()
	for name, instead := range map[string]func(d string) error{
		"nothing":   func(string) error { return nil },
		"a link":    func(d string) error { return os.Symlink("../outside", d) },
		"a new one": func(d string) error { return os.MkdirAll(filepath.Join(d, "e"), 0o755) },
	} {
		tree, files := crowded(t)
		d, away := filepath.Join(tree.Path, "d"), filepath.Join(path.Dir(tree.Path), "away")
		before := state(t, path.Dir(tree.Path))
		tx := &undo.Tx{Log: func(err error) { t.Errorf("%s: %v", name, err) }, Fault: func(_ context.Context, at string) error {
			if at != "done:before" {
				return nil
			}
			return errors.Join(os.Rename(d, away), instead(d))
		}}
		if err := Put(t.Context(), tree, tx, files, nil); err == nil || isConfined(err) {
			t.Errorf("%s: %v", name, err)
		}
		must(t, os.RemoveAll(d))
		must(t, os.Rename(away, d))
		if after := state(t, path.Dir(tree.Path)); after != before {
			t.Errorf("%s: the tree changed:\n%s\n%s", name, before, after)
		}
	}
}

// TestPutKeepsFilesCreatedMeanwhile creates a file at a destination after Put has checked it: the file is kept.
func TestWhatComesInTheWayAtTheLastMomentStays(t *testing.T) {
	t.Parallel()
	for point, mine := range map[string]string{"place z:before": "z", "place d/new:before": "d/new", "place a:before": "a/mine"} {
		tree, files := crowded(t)
		tx := &undo.Tx{Log: func(err error) { t.Errorf("%s: %v", point, err) }, Fault: func(_ context.Context, at string) error {
			if at == point {
				if mine == "a/mine" {
					must(t, os.Remove(filepath.Join(tree.Path, "a")))
				}
				write(t, "mine", tree.Path, mine)
			}
			return nil
		}}
		if err := Put(t.Context(), tree, tx, files, nil); err == nil {
			t.Errorf("%s: Put succeeded", point)
		}
		if read(t, tree.Path, mine) != "mine" || read(t, tree.Path, "d", "b") != "old b" || len(entries(t, tree.Path, guard.AgencyDir)) != 1 {
			t.Errorf("%s: %q", point, entries(t, tree.Path))
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
		t.Errorf("%s was not reached: %v", point, Put(t.Context(), tree, tx, files, nil))
	}()
	<-gone
}

func TestAPutKilledAtAnyStepIsUndoneByTheNext(t *testing.T) {
	t.Parallel()
	tree, files := crowded(t)
	before := state(t, path.Dir(tree.Path))
	all := points(t)
	for _, point := range all[:len(all)-1] {
		killedPut(t, tree, files, point)
		must(t, Recover(t.Context(), tree, -1))
		if after := state(t, path.Dir(tree.Path)); after != before {
			t.Fatalf("%s: the tree changed:\n%s\n%s", point, before, after)
		}
		// The next put recovers by itself.
		killedPut(t, tree, files, point)
		must(t, put(t, tree, text("next", "n")))
		must(t, os.Remove(filepath.Join(tree.Path, "next")))
		if after := state(t, path.Dir(tree.Path)); after != before {
			t.Fatalf("%s: the tree changed:\n%s\n%s", point, before, after)
		}
	}
	killedPut(t, tree, files, all[len(all)-1]) // complete; only the stage is left
	must(t, Recover(t.Context(), tree, -1))
	if read(t, tree.Path, "a") != "new a" || read(t, tree.Path, "d", "new", "x") != "x" || len(entries(t, tree.Path, guard.AgencyDir)) != 1 {
		t.Error("the completed put was undone")
	}
}

// TestRecoverDoesNotUndoCompletedPut removes part of the stage, as a process killed during cleanup does.
func TestNothingIsRestoredFromAPutThatWasDone(t *testing.T) {
	t.Parallel()
	tree, files := crowded(t)
	killedPut(t, tree, files, "done:after")
	stage := filepath.Join(tree.Path, guard.AgencyDir, entries(t, tree.Path, guard.AgencyDir)[1])
	for _, name := range entries(t, stage) {
		if name != oldDirName {
			must(t, os.RemoveAll(filepath.Join(stage, name)))
		}
	}
	must(t, os.Remove(filepath.Join(tree.Path, "a")))
	if found, err := FindInterrupted(t.Context(), tree); err != nil || len(found) != 1 || found[0].HoldsReplaced {
		t.Errorf("%+v, %v", found, err)
	}
	if n, dirs, err := RescueReplaced(t.Context(), tree); n != 0 || len(dirs) != 0 || err != nil {
		t.Errorf("%d, %q, %v", n, dirs, err)
	}
	must(t, Recover(t.Context(), tree, -1))
	if exists(filepath.Join(tree.Path, "a")) || exists(stage) || read(t, tree.Path, "d", "b") != "new b" {
		t.Errorf("left: %q", entries(t, tree.Path))
	}
}

func TestUndoingAKilledPutKeepsWhatWasDoneSince(t *testing.T) {
	t.Parallel()
	tree, files := crowded(t)
	killedPut(t, tree, files, "done:before")
	write(t, "mine", tree.Path, "fresh", "mine")              // in a directory of the put
	write(t, "changed", tree.Path, "d", "b")                  // a file of the put, changed
	must(t, os.Remove(filepath.Join(tree.Path, "a")))         // a file of the put, replaced
	write(t, "mine too", tree.Path, "a")                      //
	must(t, os.RemoveAll(filepath.Join(tree.Path, "d", "e"))) // the directory of a replaced file is gone
	must(t, Recover(t.Context(), tree, -1))
	for name, want := range map[string]string{"fresh/mine": "mine", "d/b": "changed", "a": "mine too", "d/other": "other"} {
		if got := read(t, tree.Path, name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	for _, name := range []string{"z", "fresh/narrow", "fresh/link", "d/new"} {
		if exists(filepath.Join(tree.Path, name)) {
			t.Errorf("%s is still there", name)
		}
	}
	if len(entries(t, tree.Path, guard.AgencyDir)) != 1 {
		t.Error("the stage is still there")
	}
}

func TestThereIsNothingToRecoverWhereNothingWasPut(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	must(t, Recover(t.Context(), tree, -1))
	must(t, os.RemoveAll(filepath.Join(tree.Path, guard.AgencyDir)))
	must(t, Recover(t.Context(), tree, -1))
	write(t, "", tree.Path, guard.AgencyDir)
	must(t, Recover(t.Context(), tree, -1))
}

func TestAPutThatLivesIsNotTakenForDead(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	tx := &undo.Tx{Fault: func(_ context.Context, at string) error {
		if at != "stage:after" {
			return nil
		}
		if err := Recover(t.Context(), tree, -1); err != nil {
			return err
		}
		return put(t, tree, text("b", "2"))
	}}
	must(t, Put(t.Context(), tree, tx, []File{text("a", "1")}, nil))
	if read(t, tree.Path, "a") != "1" || read(t, tree.Path, "b") != "2" {
		t.Error("one of the puts is missing")
	}
}

func TestASourceThatFailsOrHangsFailsThePut(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	before := state(t, tree.Path)
	broken := errors.New("broken")
	if err := put(t, tree, text("a", ""), File{Path: "b", Open: func() (io.ReadCloser, error) { return nil, broken }}); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := put(t, tree, text("a", ""), File{Path: "b", Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader("x"), failing{broken})), nil
	}}); !errors.Is(err, broken) {
		t.Error(err)
	}
	late := errors.New("too late")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, late)
	defer cancel()
	r, w := io.Pipe()
	defer w.Close()
	if err := Put(ctx, tree, &undo.Tx{}, []File{{Path: "b", Open: func() (io.ReadCloser, error) { return r, nil }}}, nil); !errors.Is(err, late) {
		t.Error(err)
	}
	if after := state(t, tree.Path); after != before {
		t.Errorf("the tree changed:\n%s\n%s", before, after)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestManyPutsAtOnceEachHappenWhollyOrNotAtAll(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 5 {
				var files []File
				for j := range 20 {
					files = append(files, text(fmt.Sprintf("shared/d%d/f%d", j%3, j), fmt.Sprint(i)), text(fmt.Sprintf("own%d/f%d", i, j), ""))
				}
				other, err := guard.OpenTree(tree.Path) // own handles, as in another process
				if err == nil {
					err = errors.Join(Put(t.Context(), other, &undo.Tx{}, files, nil), other.Close())
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
		contents[read(t, tree.Path, fmt.Sprintf("shared/d%d/f%d", j%3, j))] = true
	}
	if len(contents) != 1 {
		t.Errorf("files of several puts: %v", contents)
	}
	if left := entries(t, tree.Path, guard.AgencyDir); len(left) != 1 {
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
		before, out := state(t, tree.Path), state(t, outside)
		var files []File
		for line := range strings.SplitSeq(batch, "\n") {
			switch name, target, isLink := strings.Cut(line, ">"); {
			case isLink:
				files = append(files, symlink(name, target))
			case strings.HasSuffix(name, "/"):
				files = append(files, File{Path: name, Mode: fs.ModeDir})
			default:
				files = append(files, text(name, "new"))
			}
		}
		step := 0
		tx := &undo.Tx{Log: func(err error) { t.Error(err) }, Fault: func(context.Context, string) error {
			if step++; step == fail {
				return errors.New("on purpose")
			}
			return nil
		}}
		err := Put(t.Context(), tree, tx, files, nil)
		if state(t, outside) != out {
			t.Fatalf("%q: files outside changed", batch)
		}
		after := state(t, tree.Path)
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
