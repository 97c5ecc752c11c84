package main

import (
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// mountIn mounts a file system for a test.
func mountIn(t *testing.T, source, point, kind string, flags uintptr, data string) {
	t.Helper()
	if err := os.MkdirAll(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(source, point, kind, flags, data); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_DETACH) })
}

// TestPathsCopyShowsMountsReadOnly starts a sandbox over a directory with mount points. Commands see them as they are, cannot write to
// them, and change the rest of a copy.
func TestPathsCopyShowsMountsReadOnly(t *testing.T) {
	if rerunInMountNamespace(t) {
		return
	}
	l := newPathsLab(t)
	x := filepath.Join(l.repo, "x")
	l.write(filepath.Join(l.repo, "file"), "bound\n")
	l.write(filepath.Join(x, "sub/one"), "covered\n")
	if err := unix.Mount(filepath.Join(l.repo, "file"), filepath.Join(x, "sub/one"), "", unix.MS_BIND, ""); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(x, "sub/one"), unix.MNT_DETACH) })
	mountIn(t, "tmpfs", filepath.Join(x, "mnt"), "tmpfs", 0, "")
	mountIn(t, "tmpfs", filepath.Join(x, "mnt/inner"), "tmpfs", 0, "")
	l.write(filepath.Join(x, "mnt/file"), "mounted\n")
	l.write(filepath.Join(x, "mnt/inner/file"), "inner\n")
	o := l.try(nil, "git-agency", "start", "--path", "x")
	for _, want := range []string{x + " is copied: no overlay can be mounted on it: an overlay cannot contain a mount point", x + "/mnt is not copied: it is a mount point, and read-only in the sandbox"} {
		if o.code != 0 || !strings.Contains(o.stderr, want) {
			t.Fatalf("start exited with %d: %s; want %q", o.code, o.stderr, want)
		}
	}
	id := o.line()
	l.agency("exec", id, "--", "sh", "-ec", `test "$(cat mnt/file mnt/inner/file sub/one)" = "mounted
inner
bound"
! touch mnt/new; ! touch mnt/inner/new; ! sh -c 'echo x >sub/one'; ! rm -r mnt; ! mv sub elsewhere
echo new >change; echo new >sub/new`)
	if got := l.agency("diff", id, "--name-status"); got != "M\tx/change\nA\tx/sub/new" {
		t.Errorf("diff prints %q", got)
	}
	if got := l.agency("land", id); got != "x/change\nx/sub/new" {
		t.Errorf("land prints %q", got)
	}
	if got := l.read(filepath.Join(x, "change")) + l.read(filepath.Join(x, "sub/one")); got != "new\nbound\n" {
		t.Errorf("the files have %q", got)
	}
	l.fixPaths("the landing")
}

// TestPathsCopyOfStackedOverlay starts a sandbox over a directory whose file system cannot be the lower layer of an overlay.
func TestPathsCopyOfStackedOverlay(t *testing.T) {
	if rerunInMountNamespace(t) {
		return
	}
	l := newLab(t)
	lower := filepath.Join(l.dir, "lower")
	l.write(filepath.Join(lower, "file"), "old\n")
	for _, name := range []string{"one", "two", "x"} { // the kernel allows two overlays on each other
		point, layers := filepath.Join(l.repo, name), filepath.Join(l.dir, "layers", name)
		if name == "x" {
			if err := os.Symlink("two", point); err != nil {
				t.Fatal(err)
			}
			break
		}
		mountIn(t, "tmpfs", layers, "tmpfs", 0, "") // the upper directory must not be on an overlay
		for _, dir := range []string{"upper", "work"} {
			if err := os.Mkdir(filepath.Join(layers, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		mountIn(t, "overlay", point, "overlay", 0, "userxattr,lowerdir="+lower+",upperdir="+layers+"/upper,workdir="+layers+"/work")
		lower = point
	}
	o := l.try(nil, "git-agency", "start", "--path", "x")
	if o.code != 0 || !strings.Contains(o.stderr, "two is copied: no overlay can be mounted on it: its file system cannot be the lower layer of an overlay") {
		t.Fatalf("start exited with %d: %s", o.code, o.stderr)
	}
	l.agency("exec", o.line(), "--", "sh", "-ec", "echo new >>file; echo new >new")
	if got := l.agency("land", o.line()); got != "x/file\nx/new" {
		t.Errorf("land prints %q", got)
	}
	if got := l.read(filepath.Join(l.repo, "two/file")); got != "old\nnew\n" {
		t.Errorf("the file has %q", got)
	}
}

// TestPathsCopyOnFullDisk makes a copy for which there is no space. Nothing is left of it.
func TestPathsCopyOnFullDisk(t *testing.T) {
	if rerunInMountNamespace(t) {
		return
	}
	l := newPathsLab(t)
	big := make([]byte, 3<<20)
	_, _ = rand.New(rand.NewSource(1)).Read(big)
	l.write(filepath.Join(l.repo, "x/big"), string(big))
	mountIn(t, "tmpfs", filepath.Join(l.repo, "x/mnt"), "tmpfs", 0, "")
	data := filepath.Join(l.dir, "data")
	mountIn(t, "tmpfs", data, "tmpfs", 0, "size=2m,mode=0700")
	o := l.try(nil, "git-agency", "start", "--path", "x")
	if o.code != 1 || !strings.Contains(o.stderr, "read x: copy it: ") || !strings.Contains(o.stderr, "no space left on device") {
		t.Errorf("start exited with %d: %s", o.code, o.stderr)
	}
	for _, dir := range []string{"paths/copies", "repos"} {
		found, _ := filepath.Glob(filepath.Join(data, dir, "*", "sandboxes", "*"))
		copies, _ := filepath.Glob(filepath.Join(data, dir, "*"))
		if dir == "paths/copies" && len(copies) > 0 || len(found) > 0 {
			t.Errorf("left %q, %q", found, copies)
		}
	}
	l.fixPaths("the failure")
	if err := os.Remove(filepath.Join(l.repo, "x/big")); err != nil {
		t.Fatal(err)
	}
	l.agency("discard", l.agency("start", "--path", "x"))
}

// TestPathsCopyOfAnotherGroup starts sandboxes over directories with a file, directory or git directory of a supplementary group of the
// user, which commands behind walls cannot change through an overlay.
func TestPathsCopyOfAnotherGroup(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Parallel()
		rerunInSecondGroup(t)
		return
	}
	group := supplementaryGroup(t)
	for _, name := range []string{"x", "x/change", "x/dir", "x/.git/config"} {
		l := newPathsLab(t)
		l.write(filepath.Join(l.repo, "x/.git/config"), "[core]\n")
		path := filepath.Join(l.repo, name)
		if err := os.Chown(path, -1, group); err != nil {
			t.Fatal(err)
		}
		o := l.try(nil, "git-agency", "start", "--path", "y", "--path", "x")
		if o.code != 0 || !strings.Contains(o.stderr, "x is copied: no overlay can be mounted on it: ") || !strings.Contains(o.stderr, " belongs to the group ") {
			t.Fatalf("%s: start exited with %d: %s", name, o.code, o.stderr)
		}
		if strings.Contains(o.stderr, "y is copied") {
			t.Errorf("%s: %s", name, o.stderr)
		}
		l.agency("exec", o.line(), "--cwd", filepath.Join(l.repo, "x"), "--", "sh", "-ec", "echo new >>change; rm gone; echo new >>dir/z; echo new >dir/new; touch .git/config")
		if got := l.agency("land", o.line()); got != "x/change\nx/dir/new\nx/dir/z\nx/gone" {
			t.Errorf("%s: land prints %q", name, got)
		}
		if fi, err := os.Stat(path); err != nil || int(fi.Sys().(*syscall.Stat_t).Gid) != group {
			t.Errorf("%s: the group is lost: %v", name, err)
		}

		if err := os.Chmod(filepath.Join(l.repo, "x/dir/z"), 0); err != nil {
			t.Fatal(err)
		}
		o = l.try(nil, "git-agency", "start", "--path", "x")
		if o.code != 5 || !strings.Contains(o.stderr, "it cannot be copied either, because you may not read "+l.repo+"/x/dir/z") {
			t.Errorf("%s: start of an unreadable file exited with %d: %s", name, o.code, o.stderr)
		}
		if left, err := os.ReadDir(filepath.Join(l.dir, "data/paths/copies")); len(left) > 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
}
