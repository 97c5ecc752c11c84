package guard

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tempDir returns t.TempDir with its symlinks resolved.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
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

func mustLocate(t *testing.T, path string) Location {
	t.Helper()
	p, err := Locate(path)
	must(t, err)
	return p
}
