package guard

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzResolve builds directories and symlinks and compares Resolve with the kernel: the result is the path the kernel
// opens, or, if only the parent exists, the name in the directory that the kernel opens.
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
		root := mkdir(t, tempDir(t), "1", "2", "3", "4") // deep enough for ".." to stay below the temporary directory
		for d := range strings.FieldsSeq(dirs) {
			_ = os.MkdirAll(filepath.Join(root, d), 0o755)
		}
		for l := range strings.FieldsSeq(links) {
			if name, target, ok := strings.Cut(l, ">"); ok && !strings.HasPrefix(target, "/") {
				_ = os.Symlink(target, filepath.Join(root, name))
			}
		}
		full := root + "/" + path // not Join, which cleans ".."
		got, err := Resolve(full)
		real, kernelErr := kernelPath(full)
		switch {
		case kernelErr == nil && (err != nil || got != real):
			t.Errorf("%q: %q, %v; the kernel goes to %q", path, got, err, real)
		case kernelErr != nil && err == nil:
			// The path does not exist: its existing parent must be the one the kernel opens, and the path itself
			// must not be a symlink.
			if exists(got) {
				t.Errorf("Resolve(%q) = %q, which exists", path, got)
			}
			dir, base := splitPath(full)
			parent, perr := kernelPath(dir)
			if perr == nil && base != "." && base != ".." && filepath.Join(parent, base) != got {
				t.Errorf("%q: %q, but the kernel would make it in %q", path, got, parent)
			}
			if fi, lerr := os.Lstat(full); lerr == nil {
				t.Errorf("%q exists, as %v", path, fi.Mode())
			}
		}
	})
}

// splitPath is filepath.Split after removing trailing slashes.
func splitPath(path string) (dir, base string) {
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	return path[:i+1], path[i+1:]
}

// kernelPath returns the path of the file that the kernel opens for path.
func kernelPath(path string) (string, error) {
	f, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
}
