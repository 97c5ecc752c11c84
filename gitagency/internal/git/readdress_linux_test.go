package git

import (
	"os"
	"path/filepath"
	"testing"
)

// The entry in a layer is made to name the place that the real entry names, and nothing is written through a link.
func TestReaddressWritesNothingThroughALink(t *testing.T) {
	t.Parallel()
	const name, old, now = "box", "/old/tree/.git\n", "/new/tree/.git\n"
	layers := []struct {
		what string
		make func(upper, outside string) error
		want string // in the layer; empty when that does not count
	}{
		{"one that was moved", func(upper, _ string) error {
			return os.WriteFile(filepath.Join(upper, "worktrees", name, "gitdir"), []byte(old), 0o644)
		}, now},
		{"one that was not", func(upper, _ string) error {
			return os.WriteFile(filepath.Join(upper, "worktrees", name, "gitdir"), []byte(now), 0o400)
		}, now},
		{"one that says nothing", func(string, string) error { return nil }, ""},
		{"a link for the file", func(upper, outside string) error {
			return os.Symlink(filepath.Join(outside, "gitdir"), filepath.Join(upper, "worktrees", name, "gitdir"))
		}, ""},
		{"a link for the entry", func(upper, outside string) error {
			path := filepath.Join(upper, "worktrees", name)
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Symlink(outside, path)
		}, ""},
		{"a link for all entries", func(upper, outside string) error {
			if err := os.RemoveAll(filepath.Join(upper, "worktrees")); err != nil {
				return err
			}
			return os.Symlink(filepath.Dir(outside), filepath.Join(upper, "worktrees"))
		}, ""},
		{"a second name of a file elsewhere", func(upper, outside string) error {
			return os.Link(filepath.Join(outside, "gitdir"), filepath.Join(upper, "worktrees", name, "gitdir"))
		}, now},
	}
	for _, l := range layers {
		t.Run(l.what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := &Repo{CommonDir: filepath.Join(dir, "git")}
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
			if err := l.make(upper, outside); err != nil {
				t.Fatal(err)
			}
			if err := r.RepointUpperEntry(upper, name); err != nil {
				t.Error(err)
			}
			if got, err := os.ReadFile(filepath.Join(outside, "gitdir")); err != nil || string(got) != old {
				t.Errorf("outside there is %q, %v", got, err)
			}
			if got, err := os.ReadFile(filepath.Join(upper, "worktrees", name, "gitdir")); l.want != "" && (err != nil || string(got) != l.want) {
				t.Errorf("in the layer there is %q, %v", got, err)
			}
		})
	}
}
