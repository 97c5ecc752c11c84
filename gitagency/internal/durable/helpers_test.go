package durable

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	found := []string{}
	for _, e := range entries {
		found = append(found, e.Name())
	}
	return found
}

func mkdir(t *testing.T, parts ...string) string {
	t.Helper()
	dir := filepath.Join(parts...)
	must(t, os.MkdirAll(dir, 0o755))
	return dir
}

func write(t *testing.T, content string, parts ...string) string {
	t.Helper()
	path := filepath.Join(parts...)
	mkdir(t, filepath.Dir(path))
	must(t, os.WriteFile(path, []byte(content), 0o644))
	return path
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	fi, err := os.Lstat(path)
	must(t, err)
	return fi.Mode()
}

// unprivileged reports whether the test runs as somebody whom permissions bind. As root it does not;
// then the same test runs again as nobody, in another process and a directory of nobody's own, and
// fails here if it fails there.
func unprivileged(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "nobody-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chown(dir, nobody, nobody))
	// The program lies where nobody may not go; an open file is a way past that, and unlike a copy it
	// is never busy.
	self, err := os.Open("/proc/self/exe")
	must(t, err)
	defer self.Close()
	cmd := exec.CommandContext(t.Context(), "/proc/self/fd/3", "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v")
	cmd.ExtraFiles = []*os.File{self}
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	} else if !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("as nobody the test did not run:\n%s", out)
	}
	return false
}
