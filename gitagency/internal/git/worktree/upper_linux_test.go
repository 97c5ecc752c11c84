package worktree

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// RepointUpperEntry must write the path from the real entry into the entry of the upper directory, and must not write
// through a symlink or a hard link.
func TestRepointUpperEntryFollowsNoLink(t *testing.T) {
	t.Parallel()
	const name, old, now = "box", "/old/tree/.git\n", "/new/tree/.git\n"
	uppers := []struct {
		what string
		make func(upper, outside string) error
		want string // gitdir in the upper directory; empty: not checked
	}{
		{"old path", func(upper, _ string) error {
			return os.WriteFile(filepath.Join(upper, "worktrees", name, "gitdir"), []byte(old), 0o644)
		}, now},
		{"current path, read-only", func(upper, _ string) error {
			return os.WriteFile(filepath.Join(upper, "worktrees", name, "gitdir"), []byte(now), 0o400)
		}, now},
		{"no gitdir file", func(string, string) error { return nil }, ""},
		{"gitdir is a symlink", func(upper, outside string) error {
			return os.Symlink(filepath.Join(outside, "gitdir"), filepath.Join(upper, "worktrees", name, "gitdir"))
		}, ""},
		{"entry is a symlink", func(upper, outside string) error {
			path := filepath.Join(upper, "worktrees", name)
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Symlink(outside, path)
		}, ""},
		{"worktrees is a symlink", func(upper, outside string) error {
			if err := os.RemoveAll(filepath.Join(upper, "worktrees")); err != nil {
				return err
			}
			return os.Symlink(filepath.Dir(outside), filepath.Join(upper, "worktrees"))
		}, ""},
		{"gitdir is a hard link", func(upper, outside string) error {
			return os.Link(filepath.Join(outside, "gitdir"), filepath.Join(upper, "worktrees", name, "gitdir"))
		}, now},
	}
	for _, c := range uppers {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := &git.Repo{CommonDir: filepath.Join(dir, "git")}
			upper, outside := filepath.Join(dir, "upper"), filepath.Join(dir, "outside", name)
			for _, d := range []string{r.AdminDir(name), filepath.Join(upper, "worktrees", name), outside} {
				if err := os.MkdirAll(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for path, text := range map[string]string{filepath.Join(r.AdminDir(name), "gitdir"): now, filepath.Join(outside, "gitdir"): old} {
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.make(upper, outside); err != nil {
				t.Fatal(err)
			}
			if err := RepointUpperEntry(r, upper, name); err != nil {
				t.Error(err)
			}
			if got, err := os.ReadFile(filepath.Join(outside, "gitdir")); err != nil || string(got) != old {
				t.Errorf("file outside is %q, %v", got, err)
			}
			if got, err := os.ReadFile(filepath.Join(upper, "worktrees", name, "gitdir")); c.want != "" && (err != nil || string(got) != c.want) {
				t.Errorf("gitdir in the upper directory is %q, %v", got, err)
			}
		})
	}
}
