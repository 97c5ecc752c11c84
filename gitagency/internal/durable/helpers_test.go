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

// unprivileged reports whether permissions apply to the test. If it runs as root, unprivileged runs the test again in
// another process as uid 65534, with a temporary directory of that user, and fails if the test fails there.
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
	// The user cannot reach the test binary by its path, so it is passed as an open file. A copy could fail with ETXTBSY.
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
