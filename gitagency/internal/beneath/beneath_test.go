package beneath

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// makeTree makes a tree with a file, a directory, symlinks that lead outside and inside, and a FIFO.
func makeTree(t *testing.T) (tree, secret string) {
	t.Helper()
	top := t.TempDir()
	tree, secret = filepath.Join(top, "tree"), filepath.Join(top, "secret")
	must(t, os.MkdirAll(filepath.Join(tree, "dir", "deep"), 0o700))
	must(t, os.MkdirAll(filepath.Join(top, "outside"), 0o700))
	must(t, os.WriteFile(secret, []byte("secret"), 0o600))
	must(t, os.WriteFile(filepath.Join(top, "outside", "file"), []byte("secret"), 0o600))
	must(t, os.WriteFile(filepath.Join(tree, "dir", "deep", "file"), []byte("content"), 0o600))
	must(t, os.Symlink(secret, filepath.Join(tree, "link")))
	must(t, os.Symlink("../outside", filepath.Join(tree, "out")))
	must(t, os.Symlink("dir", filepath.Join(tree, "in")))
	must(t, syscall.Mkfifo(filepath.Join(tree, "fifo"), 0o600))
	return tree, secret
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDirOpensRegularFilesOnly(t *testing.T) {
	t.Parallel()
	tree, _ := makeTree(t)
	d, err := Open(tree)
	must(t, err)
	defer d.Close()
	f, st, err := d.OpenFile("dir/deep/file")
	must(t, err)
	data, err := io.ReadAll(f)
	if must(t, err); string(data) != "content" || st.Size != int64(len(data)) {
		t.Errorf("content %q of %d bytes", data, st.Size)
	}
	must(t, f.Close())
	for _, name := range []string{"link", "fifo", "dir"} { // opening the FIFO must not block
		if _, _, err := d.OpenFile(name); !errors.As(err, new(*NotRegularError)) {
			t.Errorf("OpenFile(%q) = %v; want a NotRegularError", name, err)
		}
	}
	for _, name := range []string{"out/file", "in/deep/file", "../secret", "dir/../../secret", "/etc/passwd"} {
		if f, _, err := d.OpenFile(name); err == nil {
			f.Close()
			t.Errorf("OpenFile(%q) leaves the tree or follows a symlink", name)
		}
	}
}

func TestDirFollowsNoSymlink(t *testing.T) {
	t.Parallel()
	tree, secret := makeTree(t)
	d, err := Open(tree)
	must(t, err)
	defer d.Close()
	var st unix.Stat_t
	if must(t, d.Lstat("link", &st)); st.Mode&unix.S_IFMT != unix.S_IFLNK {
		t.Errorf("mode %o of a symlink", st.Mode)
	}
	if target, err := d.Readlink("link"); err != nil || target != secret {
		t.Errorf("Readlink = %q, %v", target, err)
	}
	if _, err := d.Readlink("dir/deep/file"); !errors.Is(err, unix.EINVAL) {
		t.Errorf("Readlink of a file = %v", err)
	}
	for _, name := range []string{"out", "in", "in/deep", "link", ".."} {
		if entries, _, err := d.ReadDir(name); err == nil {
			t.Errorf("ReadDir(%q) = %v", name, entries)
		}
		if err := d.Lstat(name+"/deep", &st); err == nil {
			t.Errorf("Lstat below %q succeeds", name)
		}
	}
	if _, err := Open(filepath.Join(tree, "in")); err == nil {
		t.Error("Open follows a symlink")
	}
	entries, _, err := d.ReadDir(".")
	if must(t, err); len(entries) != 5 {
		t.Errorf("entries %v", entries)
	}
}

// A directory that a symlink replaces after it was used must not be reached through the symlink.
func TestDirKeepsNoSymlinkForAReplacedDirectory(t *testing.T) {
	t.Parallel()
	tree, _ := makeTree(t)
	d, err := Open(tree)
	must(t, err)
	defer d.Close()
	var st unix.Stat_t
	must(t, d.Lstat("dir/deep/file", &st))
	must(t, os.Rename(filepath.Join(tree, "dir"), filepath.Join(tree, "was")))
	must(t, os.Symlink("../outside", filepath.Join(tree, "dir")))
	must(t, d.Lstat("was/deep/file", &st)) // another directory, so that the one before is opened again
	if err := d.Lstat("dir/file", &st); err == nil {
		t.Error("Lstat follows the symlink")
	}
}

// A second Close must not close another file that has got the same descriptor.
func TestDirCloseTwice(t *testing.T) {
	t.Parallel()
	tree, _ := makeTree(t)
	d, err := Open(tree)
	must(t, err)
	must(t, d.Close())
	must(t, d.Close())
}

// openByComponents stands in for openat2, and must refuse the same names.
func TestOpenByComponentsAgreesWithOpenat2(t *testing.T) {
	t.Parallel()
	tree, _ := makeTree(t)
	top, err := unix.Open(tree, dirFlags|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(top)
	for _, name := range []string{".", "dir", "dir/deep", "in", "in/deep", "out", "missing", "dir/missing", "fifo", "..", "dir/..", "", "/", "dir/"} {
		fd, err := openBeneath(top, name, dirFlags)
		slow, slowErr := openByComponents(top, name, dirFlags)
		for _, opened := range []int{fd, slow} {
			if opened >= 0 {
				must(t, unix.Close(opened))
			}
		}
		if name != "dir/" && name != "dir/.." && (err == nil) != (slowErr == nil) {
			t.Errorf("%q: openat2 %v, by components %v", name, err, slowErr)
		}
		if errors.Is(err, fs.ErrNotExist) != errors.Is(slowErr, fs.ErrNotExist) && name != "" {
			t.Errorf("%q: openat2 %v, by components %v", name, err, slowErr)
		}
	}
}
