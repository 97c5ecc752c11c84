package guard

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzResolve builds a small world of directories and symlinks and holds every answer against the
// kernel's: where a path exists the kernel goes there; where only its parent does, into that.
func FuzzResolve(f *testing.F) {
	f.Add("a/b", "l>a/b m>../a", "l/x")
	f.Add("a", "l>l", "l")
	f.Add("a/b/c", "a/up>..  x>a/up/a", "x/b/new")
	f.Add("a b", "d>nowhere", "d/x")
	f.Add("a/b", "l>a/b", "l/../new")
	f.Add("a/b", "l>a/b/../..", "l/../4/a/./x/../y")
	f.Fuzz(func(t *testing.T, dirs, links, path string) {
		if strings.ContainsAny(dirs+links+path, "\x00") || len(dirs)+len(links)+len(path) > 200 ||
			strings.Contains(dirs, "..") || strings.Count(links+path, "..") > 4 {
			t.Skip()
		}
		root := mkdir(t, tempDir(t), "1", "2", "3", "4") // room to go up without leaving our own
		for d := range strings.FieldsSeq(dirs) {
			_ = os.MkdirAll(filepath.Join(root, d), 0o755)
		}
		for l := range strings.FieldsSeq(links) {
			if name, target, ok := strings.Cut(l, ">"); ok && !strings.HasPrefix(target, "/") {
				_ = os.Symlink(target, filepath.Join(root, name))
			}
		}
		full := root + "/" + path // not Join, which would take ".." away
		got, err := Resolve(full)
		real, kernelErr := kernel(full)
		switch {
		case kernelErr == nil && (err != nil || got != real):
			t.Errorf("%q: %q, %v; the kernel goes to %q", path, got, err, real)
		case kernelErr != nil && err == nil:
			// It does not exist. The nearest part that does must be where the kernel goes, and nothing
			// on the way may be a symlink.
			if exists(got) {
				t.Errorf("%q is said to be %q, which exists", path, got)
			}
			dir, base := cut(full)
			parent, perr := kernel(dir)
			if perr == nil && base != "." && base != ".." && filepath.Join(parent, base) != got {
				t.Errorf("%q: %q, but the kernel would make it in %q", path, got, parent)
			}
			if fi, lerr := os.Lstat(full); lerr == nil {
				t.Errorf("%q exists, as %v", path, fi.Mode())
			}
		}
	})
}

// cut is filepath.Split without cleaning anything but slashes at the end.
func cut(path string) (dir, base string) {
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	return path[:i+1], path[i+1:]
}

// kernel asks the kernel where a path leads.
func kernel(path string) (string, error) {
	f, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
}
