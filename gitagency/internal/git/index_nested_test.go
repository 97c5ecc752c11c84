package git

import (
	"os"
	"path/filepath"
	"testing"
)

// A git that looks into a repository inside of the worktree runs what is configured there. The control shows
// that it would.
func TestWhoLooksAtAClosedIndexRunsNothingOfARepositoryInside(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		l := newLab(t)
		canary := filepath.Join(t.TempDir(), "canary")
		inner := filepath.Join(l.dir, "inner")
		l.git("init", "-q", inner)
		l.in(inner, "commit", "-q", "--allow-empty", "-m", "inner")
		l.git("add", "inner")
		l.in(inner, "config", "core.fsmonitor", "touch "+canary+"; :")
		index, _ := l.readIndex("sha1")
		if closed {
			index = index.Closed()
			if again := index.Closed(); string(again.Encode()) != string(index.Encode()) {
				t.Error("closing it twice is something else")
			}
		}
		if err := os.WriteFile(l.indexFile(), index.Encode(), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"status"}, {"diff"}, {"diff", "--cached"}, {"ls-files", "-m"}, {"stash", "list"}, {"add", "-u"}} {
			l.git(args...)
		}
		if _, err := os.Stat(canary); (err == nil) == closed {
			t.Errorf("closed %t, and the canary: %v", closed, err)
		}
		if got := l.git("ls-files", "-s"); closed && len(got) == 0 {
			t.Error("it is not there any more")
		}
	}
}
