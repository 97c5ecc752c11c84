package setup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestProgramPrefix(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bin, link, other := makeDir(t, filepath.Join(dir, "real", "bin")), makeDir(t, filepath.Join(dir, "link", "bin")), makeDir(t, filepath.Join(dir, "other", "bin"))
	for _, d := range []string{bin, link} {
		if err := os.Symlink(exe, filepath.Join(d, "git-agency")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(other, "git-agency"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	join := func(dirs ...string) string { return strings.Join(dirs, string(os.PathListSeparator)) }
	for _, tt := range []struct{ name, argv0, path, want string }{
		{"path", filepath.Join(bin, "git-agency"), join(link), filepath.Join(dir, "real")},
		{"name in PATH", "git-agency", join("/nonexistent", other, link, bin), filepath.Join(dir, "link")},
		{"name of another program in PATH", "git-agency", join(other), filepath.Dir(filepath.Dir(exe))},
		{"path that does not exist", "/nonexistent/git-agency", join(link), filepath.Dir(filepath.Dir(exe))},
		{"no PATH", "git-agency", "", filepath.Dir(filepath.Dir(exe))},
	} {
		if got, err := ProgramPrefix(tt.argv0, tt.path); err != nil || got != tt.want {
			t.Errorf("%s: got %q (%v), want %q", tt.name, got, err, tt.want)
		}
	}
}

func makeDir(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
