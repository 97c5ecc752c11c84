package gitagency_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestDirectoriesListsSandboxDirectories(t *testing.T) {
	t.Parallel()
	s := newAdoptedRepo(t).startSandbox(t)
	for _, dir := range []string{"b/c/d", "a", "b/.git"} {
		must(t, os.MkdirAll(filepath.Join(s.WorkDir(), dir), 0o755))
	}
	must(t, os.WriteFile(filepath.Join(s.WorkDir(), "b", "file"), nil, 0o644))
	must(t, os.Symlink("/", filepath.Join(s.WorkDir(), "b", "link")))
	for path, want := range map[string][]string{"": {"a", "b"}, "b/": {"c"}, s.WorkDir() + "/b": {"c"}, "a": nil} {
		if got, err := s.Directories(path); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", path, got, err)
		}
	}
	for _, path := range []string{"..", "/", "b/link/", ".agency", "b/.git", "none"} {
		if got, err := s.Directories(path); err == nil {
			t.Errorf("%q: %q", path, got)
		}
	}
}
