package overlay

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestListUpperFilesFollowsNoSymlink(t *testing.T) {
	t.Parallel()
	upper, elsewhere := t.TempDir(), t.TempDir()
	write := func(path string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(elsewhere, "heads/secret"))
	write(filepath.Join(upper, "refs/heads/a/b"))
	write(filepath.Join(upper, "refs/tags/v1"))
	if err := errors.Join(os.Symlink(elsewhere, filepath.Join(upper, "logs")), os.Symlink(elsewhere, filepath.Join(upper, "refs/link"))); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string][]string{
		"refs":          {"refs/heads/a/b", "refs/link", "refs/tags/v1"},
		"logs":          nil,
		"refs/link":     nil,
		"worktrees/x/y": nil,
	} {
		if got, err := ListUpperFiles(upper, dir, 10); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s has %q, %v; want %q", dir, got, err, want)
		}
	}
	if got, err := ListUpperFiles(upper, "refs", 2); !errors.Is(err, ErrLimitExceeded) {
		t.Errorf("beyond the limit: %q, %v", got, err)
	}
}
