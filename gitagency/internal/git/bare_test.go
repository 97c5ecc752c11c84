package git

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

func TestEnclosingRepoFindsRepositoryOfDirectory(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	w := AddSandbox(l)
	home := gittest.TempDir(t)
	for _, dir := range []string{"plain/sub", "stray/.git", "stray/sub"} {
		l.Must(os.MkdirAll(filepath.Join(home, dir), 0o755))
	}
	for dir, want := range map[string]string{
		l.Root:                                l.Root,
		filepath.Join(l.Root, "dir"):          l.Root,
		filepath.Join(w.Tree, "dir"):          w.Tree,
		filepath.Join(l.Root, ".git/objects"): filepath.Join(l.Root, ".git"),
		filepath.Join(home, "plain/sub"):      "",
		filepath.Join(home, "stray"):          filepath.Join(home, "stray"),
		filepath.Join(home, "stray/sub"):      "", // git ignores an empty .git directory
	} {
		if got, err := EnclosingRepo(dir); err != nil || got != want {
			t.Errorf("%s: %q, %v", dir, got, err)
		}
	}
}
