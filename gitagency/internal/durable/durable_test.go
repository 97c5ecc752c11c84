package durable

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

func TestWriteFileIsAtomicForReaders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	content := func(i int) []byte { // begins with its length
		size := i * 7919 % 100_000
		return append(fmt.Appendf(nil, "%8d", size), bytes.Repeat([]byte{byte('a' + i%26)}, size)...)
	}
	must(t, WriteFile(path, content(0), 0o600))
	done := make(chan struct{})
	var wg sync.WaitGroup
	var looked atomic.Int64
	for range 3 {
		wg.Go(func() {
			for {
				data, err := os.ReadFile(path)
				if err != nil || len(data) < 8 || strings.TrimSpace(string(data[:8])) != strconv.Itoa(len(data)-8) ||
					len(data) > 8 && bytes.Count(data[8:], data[8:9]) != len(data)-8 {
					t.Errorf("partial content: %d bytes, %v", len(data), err)
					return
				}
				looked.Add(1)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range 150 {
		must(t, WriteFile(path, content(i), 0o600))
	}
	close(done)
	wg.Wait()
	if looked.Load() == 0 {
		t.Error("no reader ran")
	}
	if left := names(t, dir); !slices.Equal(left, []string{"file"}) {
		t.Errorf("left behind: %q", left)
	}
}

// TestConcurrentWriteFileLeavesOneCompleteFile lets several goroutines replace one file: the content of one writer remains.
func TestConcurrentWriteFileLeavesOneCompleteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 10 {
				if err := WriteFile(path, bytes.Repeat([]byte{byte('a' + i)}, 10_000*(i+1)), 0o644); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	data, err := os.ReadFile(path)
	must(t, err)
	if len(data) != 10_000*int(data[0]-'a'+1) || bytes.Count(data, data[:1]) != len(data) {
		t.Errorf("%d bytes of %q", len(data), data[:1])
	}
	if left := names(t, dir); !slices.Equal(left, []string{"file"}) {
		t.Errorf("left behind: %q", left)
	}
}

func TestWriteFileSetsModeAndReplacesName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, perm := range []fs.FileMode{0o600, 0o644, 0o666, 0o777, 0o400} {
		path := filepath.Join(dir, fmt.Sprintf("%o", perm))
		for range 2 {
			must(t, WriteFile(path, []byte("x"), perm))
			if got := mode(t, path); got != perm {
				t.Errorf("%v became %v", perm, got)
			}
		}
	}
	// WriteFile replaces the name: neither the target of a symlink nor another hard link changes.
	target := write(t, "mine", dir, "target")
	link := filepath.Join(dir, "link")
	must(t, os.Symlink(target, link))
	hard := filepath.Join(dir, "hard")
	must(t, os.Link(target, hard))
	must(t, WriteFile(link, []byte("new"), 0o600))
	must(t, WriteFile(hard, []byte("new"), 0o600))
	if data, _ := os.ReadFile(target); string(data) != "mine" {
		t.Errorf("the target is %q", data)
	}
	if !mode(t, link).IsRegular() {
		t.Error("the symlink was not replaced")
	}
	for _, name := range []string{"sp ace", "new\nline", "st*r", "-dash", strings.Repeat("x", 200)} {
		must(t, WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != name {
			t.Errorf("%q: %q, %v", name, data, err)
		}
	}
}

func TestFailedWriteFileLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	full := mkdir(t, dir, "full")
	write(t, "x", full, "in")
	mkdir(t, dir, "empty")
	for _, name := range []string{"full", "empty", "none/file", "full/in/file"} {
		before := names(t, dir)
		err := WriteFile(filepath.Join(dir, name), []byte("x"), 0o600)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if after := names(t, dir); !slices.Equal(after, before) {
			t.Errorf("%s: left behind: %q", name, after)
		}
	}
	if !exists(filepath.Join(full, "in")) {
		t.Error("a directory was replaced")
	}
}

func TestCreateRunsPrepareBeforeFileIsVisible(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	var steps []string
	f, err := Create(path, []byte("x"), 0o600, func(f *os.File) error {
		if exists(path) {
			t.Error("the file is visible before prepare has run")
		}
		for _, name := range names(t, dir) {
			if !strings.HasPrefix(name, TempPrefix) {
				t.Errorf("not a temporary name: %q", name)
			}
		}
		steps = append(steps, "one")
		return nil
	}, func(*os.File) error { steps = append(steps, "two"); return nil })
	must(t, err)
	if fi, err := f.Stat(); err != nil || !os.SameFile(fi, mustStat(t)(os.Stat(path))) {
		t.Error("the returned file is not the one at path")
	}
	must(t, f.Close())
	if !slices.Equal(steps, []string{"one", "two"}) {
		t.Errorf("steps %q", steps)
	}
	no := errors.New("no")
	if _, err := Create(filepath.Join(dir, "other"), nil, 0o600, func(*os.File) error { return no }); !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
	if left := names(t, dir); !slices.Equal(left, []string{"file"}) {
		t.Errorf("left behind: %q", left)
	}
}

func mustStat(t *testing.T) func(fs.FileInfo, error) fs.FileInfo {
	return func(fi fs.FileInfo, err error) fs.FileInfo { t.Helper(); must(t, err); return fi }
}

func TestReadFileRefusesNonRegularAndLargeFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, "12345", dir, "file")
	write(t, "", dir, "empty")
	mkdir(t, dir, "dir")
	must(t, os.Symlink("file", filepath.Join(dir, "link")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	for name, want := range map[string]string{"file": "12345", "empty": "", "link": "12345"} {
		if got, err := ReadFile(filepath.Join(dir, name), 5); err != nil || string(got) != want || got == nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, path := range []string{filepath.Join(dir, "pipe"), filepath.Join(dir, "dir"), "/dev/zero", "/dev/null"} {
		if got, err := ReadFile(path, 1<<20); err == nil {
			t.Errorf("%s: %d bytes", path, len(got))
		}
	}
	if got, err := ReadFile(filepath.Join(dir, "file"), 4); err == nil {
		t.Errorf("too large: %q", got)
	}
	if _, err := ReadFile(filepath.Join(dir, "none"), 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}

func TestMkdirIsExclusive(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "dir")
	must(t, Mkdir(dir, 0o700))
	if got := mode(t, dir); got != fs.ModeDir|0o700 {
		t.Errorf("mode %v", got)
	}
	if err := Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second Mkdir: %v", err)
	}
	if err := Mkdir(filepath.Join(dir, "a", "b"), 0o700); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a parent: %v", err)
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 2 {
		must(t, Remove(filepath.Join(dir, "none")))
		must(t, Remove(filepath.Join(dir, "none", "at", "all")))
	}
	must(t, Remove(write(t, "x", dir, "file")))
	must(t, Remove(mkdir(t, dir, "empty")))
	target := write(t, "x", dir, "full", "target")
	link := filepath.Join(dir, "link")
	must(t, os.Symlink(target, link))
	must(t, Remove(link))
	if err := Remove(filepath.Join(dir, "full")); err == nil || !exists(target) {
		t.Errorf("a non-empty directory: %v", err)
	}
}

func TestSyncReportsMissingFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, "x", dir, "file")
	must(t, Sync(file, dir))
	must(t, Sync())
	must(t, SyncDir(dir))
	if err := Sync(file, filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestRemoveTreeRemovesReadOnlyDirectories(t *testing.T) {
	t.Parallel()
	if !unprivileged(t) {
		return
	}
	for name, modes := range map[string]map[string]fs.FileMode{
		"plain":                       {},
		"read-only directories":       {"mod": 0o555, "mod/pkg": 0o555, ".": 0o555},
		"no permissions":              {"mod": 0, "mod/pkg": 0},
		"only read permission":        {"mod": 0o444, "mod/pkg": 0o444},
		"only search permission":      {"mod": 0o111, "mod/pkg": 0o111},
		"only write permission":       {"mod": 0o222, "mod/pkg": 0o222},
		"only the top directory":      {".": 0},
		"read-only files too":         {"mod": 0o555, "mod/pkg": 0o555, "mod/pkg/file": 0o400, "mod/file": 0},
		"sticky and set group id too": {"mod": 0o555 | fs.ModeSticky | fs.ModeSetgid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			outside := mkdir(t, root, "outside")
			precious := write(t, "mine", outside, "precious")
			must(t, os.Chmod(precious, 0o400))
			must(t, os.Chmod(outside, 0o500))
			t.Cleanup(func() { _ = os.Chmod(outside, 0o700) })
			tree := mkdir(t, root, "tree")
			write(t, "x", tree, "mod", "pkg", "file")
			write(t, "x", tree, "mod", "file")
			must(t, os.Symlink(outside, filepath.Join(tree, "mod", "out")))
			must(t, os.Symlink(precious, filepath.Join(tree, "mod", "pkg", "out")))
			must(t, os.Symlink("../../..", filepath.Join(tree, "mod", "pkg", "up")))
			for _, path := range []string{"mod/pkg/file", "mod/file", "mod/pkg", "mod", "."} {
				if m, set := modes[path]; set {
					must(t, os.Chmod(filepath.Join(tree, path), m))
				}
			}
			for range 2 {
				must(t, RemoveTree(tree))
			}
			if exists(tree) {
				t.Error("the tree was not removed")
			}
			if mode(t, outside) != fs.ModeDir|0o500 || mode(t, precious) != 0o400 || !exists(precious) {
				t.Errorf("outside: %v, %v", mode(t, outside), mode(t, precious))
			}
		})
	}
}

func TestRemoveTreeFollowsNoSymlink(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	outside := mkdir(t, root, "outside")
	precious := write(t, "mine", outside, "precious")
	tree := mkdir(t, root, "tree")
	must(t, os.Symlink(outside, filepath.Join(tree, "out")))
	must(t, os.Symlink("../..", filepath.Join(tree, "up")))
	must(t, os.Link(precious, filepath.Join(tree, "hard")))
	must(t, syscall.Mkfifo(filepath.Join(tree, "pipe"), 0o600))
	must(t, RemoveTree(tree))
	// If tree itself is a symlink, the symlink is removed.
	must(t, os.Symlink(outside, tree))
	must(t, RemoveTree(tree))
	if exists(tree) || !exists(precious) {
		t.Error("the symlink was not removed, or its target was")
	}
	must(t, RemoveTree(filepath.Join(root, "none")))
	must(t, RemoveTree(write(t, "x", root, "file")))
	if exists(filepath.Join(root, "file")) {
		t.Error("a file was not removed")
	}
}

// TestRemoveTreeRemovesTreeDeeperThanPathMax: a program that calls mkdir and chdir in a loop makes such a tree.
func TestRemoveTreeRemovesTreeDeeperThanPathMax(t *testing.T) {
	t.Parallel()
	if !unprivileged(t) {
		return
	}
	tree := mkdir(t, t.TempDir(), "tree")
	root, err := os.OpenRoot(tree)
	must(t, err)
	name := strings.Repeat("d", 200)
	for range 25 { // 5000 bytes
		must(t, root.Mkdir(name, 0o755))
		next, err := root.OpenRoot(name)
		must(t, err)
		must(t, root.Close())
		root = next
	}
	f, err := root.Create("file")
	must(t, errors.Join(err, f.Close(), root.Chmod(".", 0o500), root.Close()))
	must(t, RemoveTree(tree))
	if exists(tree) {
		t.Error("the tree was not removed")
	}
}

func TestRestoreOwnerPermissions(t *testing.T) {
	t.Parallel()
	if !unprivileged(t) {
		return
	}
	root := t.TempDir()
	outside := write(t, "mine", root, "outside")
	must(t, os.Chmod(outside, 0))
	tree := mkdir(t, root, "tree")
	write(t, "x", tree, "a", "b", "file")
	write(t, "x", tree, "a", "script")
	write(t, "x", tree, "a", "fine")
	must(t, os.Symlink(outside, filepath.Join(tree, "a", "out")))
	must(t, os.Symlink("../a", filepath.Join(tree, "a", "self")))
	must(t, syscall.Mkfifo(filepath.Join(tree, "a", "pipe"), 0))
	for path, m := range map[string]fs.FileMode{"a/b/file": 0, "a/script": 0o111, "a/fine": 0o440} {
		must(t, os.Chmod(filepath.Join(tree, path), m))
	}
	for _, path := range []string{"a/b", "a", "."} {
		must(t, os.Chmod(filepath.Join(tree, path), 0o050))
	}
	for range 2 {
		must(t, RestoreOwnerPermissions(tree))
		for path, want := range map[string]fs.FileMode{
			".": fs.ModeDir | 0o750, "a": fs.ModeDir | 0o750, "a/b": fs.ModeDir | 0o750,
			"a/b/file": 0o400, "a/script": 0o511, "a/fine": 0o440, "a/pipe": fs.ModeNamedPipe,
		} {
			if got := mode(t, filepath.Join(tree, path)); got != want {
				t.Errorf("%s is %v, want %v", path, got, want)
			}
		}
		if got := mode(t, outside); got != 0 {
			t.Errorf("outside is %v", got)
		}
	}
	if err := RestoreOwnerPermissions(filepath.Join(root, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
	link := filepath.Join(root, "link")
	must(t, os.Symlink(outside, link))
	must(t, RestoreOwnerPermissions(link))
	if got := mode(t, outside); got != 0 {
		t.Errorf("outside, through a link at the top, is %v", got)
	}
}

// TestRestoreOwnerPermissionsStaysInsideDuringSwaps replaces directories by symlinks out of the tree while permissions are
// restored.
func TestRestoreOwnerPermissionsStaysInsideDuringSwaps(t *testing.T) {
	t.Parallel()
	if !unprivileged(t) {
		return
	}
	root := t.TempDir()
	outside := mkdir(t, root, "outside")
	secret := write(t, "mine", outside, "secret")
	must(t, os.Chmod(secret, 0))
	must(t, os.Chmod(outside, 0o500))
	t.Cleanup(func() { _ = os.Chmod(outside, 0o700) })
	tree := mkdir(t, root, "tree")
	real, link, at := filepath.Join(tree, "real"), filepath.Join(tree, "link"), filepath.Join(tree, "at")
	write(t, "x", real, "secret")
	must(t, os.Symlink(outside, link))
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			_ = syscall.Rename(real, at)
			_ = os.Chmod(filepath.Join(at, "secret"), 0)
			_ = os.Chmod(at, 0o500)
			_ = syscall.Rename(at, real)
			_ = syscall.Rename(link, at)
			_ = syscall.Rename(at, link)
			_ = os.Chmod(real, 0o700)
		}
	})
	for range 2000 {
		_ = RestoreOwnerPermissions(tree)
		if mode(t, secret) != 0 || mode(t, outside) != fs.ModeDir|0o500 {
			t.Errorf("outside: %v, %v", mode(t, outside), mode(t, secret))
			break
		}
	}
	close(done)
	wg.Wait()
	_ = os.Chmod(real, 0o700)
}

func TestRemoveAtomicallyFollowsNoSymlink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	precious := write(t, "mine", dir, "outside", "precious")
	tree := mkdir(t, dir, "tree")
	write(t, "x", tree, "sub", "file")
	must(t, os.Symlink(filepath.Dir(precious), filepath.Join(tree, "out")))
	write(t, "x", dir, TempPrefix+"tree", "of an earlier attempt")
	for range 2 {
		must(t, RemoveAtomically(tree))
	}
	must(t, os.Symlink(filepath.Dir(precious), tree))
	must(t, RemoveAtomically(tree))
	if got := names(t, dir); !slices.Equal(got, []string{"outside"}) || !exists(precious) {
		t.Errorf("left: %q", got)
	}
	if err := RemoveAtomically(filepath.Join(dir, "none", "at", "all")); err != nil {
		t.Error(err)
	}
}

func TestListTemps(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, "x", dir, "file")
	want := []string{write(t, "x", dir, TempPrefix+"a"), mkdir(t, dir, TempPrefix+"b")}
	if got, err := ListTemps(dir); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := ListTemps(filepath.Join(dir, "none")); err != nil || len(got) > 0 {
		t.Errorf("got %q, %v", got, err)
	}
}
