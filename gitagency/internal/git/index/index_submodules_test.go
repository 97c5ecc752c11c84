package index

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// A git that looks into a repository inside of the worktree runs what is configured there. The control shows
// that it would.
func TestWhoLooksAtAClosedIndexRunsNothingOfARepositoryInside(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		l := gittest.New(t)
		canary := filepath.Join(t.TempDir(), "canary")
		inner := filepath.Join(l.Root, "inner")
		l.Git("init", "-q", inner)
		l.GitIn(inner, "commit", "-q", "--allow-empty", "-m", "inner")
		l.Git("add", "inner")
		l.GitIn(inner, "config", "core.fsmonitor", "touch "+canary+"; :")
		index, _ := readIndexFile(l, "sha1")
		if closed {
			index = index.WithSubmodulesSkipped()
			if again := index.WithSubmodulesSkipped(); string(again.Encode()) != string(index.Encode()) {
				t.Error("closing it twice is something else")
			}
		}
		if err := os.WriteFile(indexPath(l), index.Encode(), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"status"}, {"diff"}, {"diff", "--cached"}, {"ls-files", "-m"}, {"stash", "list"}, {"add", "-u"}} {
			l.Git(args...)
		}
		if _, err := os.Stat(canary); (err == nil) == closed {
			t.Errorf("closed %t, and the canary: %v", closed, err)
		}
		if got := l.Git("ls-files", "-s"); closed && len(got) == 0 {
			t.Error("it is not there any more")
		}
	}
}

// What was closed can be opened again, where it is open elsewhere, and is then what it was.
func TestAClosedIndexIsOpenedLikeAnother(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	for _, name := range []string{"one", "two"} {
		inner := filepath.Join(l.Root, name)
		l.Git("init", "-q", inner)
		l.GitIn(inner, "commit", "-q", "--allow-empty", "-m", name)
		l.Git("add", name)
	}
	open, _ := readIndexFile(l, "sha1")
	closed := open.WithSubmodulesSkipped()
	if !open.AnySubmoduleUnskipped() || open.AnySubmoduleSkipped() || closed.AnySubmoduleUnskipped() || !closed.AnySubmoduleSkipped() {
		t.Error("they do not tell open from closed")
	}
	if again := closed.WithSubmodulesLike(open); again.Fingerprint() != open.Fingerprint() {
		t.Error("opened again it is something else")
	}
	if same := closed.WithSubmodulesLike(closed); same.Fingerprint() != closed.Fingerprint() {
		t.Error("what is closed there was opened")
	}
	l.Git("update-index", "--skip-worktree", "two")
	some, _ := readIndexFile(l, "sha1")
	if got := closed.WithSubmodulesLike(some); got.Fingerprint() != some.Fingerprint() {
		t.Error("not what is open there is open now")
	}
	if got := open.WithSubmodulesLike(closed); got.Fingerprint() != open.Fingerprint() {
		t.Error("what was open was closed")
	}
	if err := os.WriteFile(indexPath(l), closed.WithSubmodulesLike(some).Encode(), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := l.Git("ls-files", "-t", "one", "two"); got != "H one\nS two" {
		t.Errorf("git reads %q", got)
	}
}
