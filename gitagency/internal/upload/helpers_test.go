package upload

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tempDir returns t.TempDir with symlinks resolved. Its clean-up makes directories writable first: an
// ordinary user cannot remove an entry of a directory that has mode 0555.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	t.Cleanup(func() {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				if fi, err := d.Info(); err == nil && fi.Mode().Perm()&0o700 != 0o700 {
					_ = os.Chmod(path, 0o700) // RemoveAll reports the entries that still cannot be removed
				}
			}
			return nil
		})
	})
	return dir
}

func mkdir(t *testing.T, parts ...string) string {
	t.Helper()
	dir := filepath.Join(parts...)
	must(t, os.MkdirAll(dir, 0o755))
	return dir
}

func link(t *testing.T, target string, parts ...string) string {
	t.Helper()
	path := filepath.Join(parts...)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.Symlink(target, path))
	return path
}

func write(t *testing.T, content string, parts ...string) string {
	t.Helper()
	path := filepath.Join(parts...)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
	return path
}

func fifo(t *testing.T, parts ...string) string {
	t.Helper()
	path := filepath.Join(parts...)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, syscall.Mkfifo(path, 0o644))
	return path
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

// targetOf returns a tree as a target whose locks are beside the tree.
func targetOf(tree *guard.Tree) Target {
	return Target{Tree: tree, LockDir: filepath.Join(filepath.Dir(tree.Path), "locks"), LockTimeout: -1}
}

// newTree makes a tree with a sandbox marker, and a directory outside it whose file must not be touched.
func newTree(t *testing.T) (_ *guard.Tree, outside string) {
	t.Helper()
	dir := tempDir(t)
	outside = mkdir(t, dir, "outside")
	write(t, "secret", outside, "file")
	top := mkdir(t, dir, "tree")
	_, err := guard.Sandbox.Write(top)
	must(t, err)
	tree, err := guard.OpenTree(top)
	must(t, err)
	t.Cleanup(func() { must(t, tree.Close()) })
	return tree, outside
}

func isConfined(err error) bool {
	var confined *guard.ConfinementError
	return errors.As(err, &confined)
}

// hostileNames returns paths that an upload must refuse. The tests of commands use the same table.
func hostileNames(t testing.TB) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "testdata", "hostile_names.json"))
	if err != nil {
		t.Fatal(err)
	}
	var table []struct{ Name, Why string }
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	for _, row := range table {
		names = append(names, row.Name)
	}
	return append(names, "a\xffb", ".g\xc0it", "\xed\xa0\x80") // invalid UTF-8, which JSON cannot hold
}
