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
			index = index.WithSubmodulesSkipped()
			if again := index.WithSubmodulesSkipped(); string(again.Encode()) != string(index.Encode()) {
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

// What was closed can be opened again, where it is open elsewhere, and is then what it was.
func TestAClosedIndexIsOpenedLikeAnother(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, name := range []string{"one", "two"} {
		inner := filepath.Join(l.dir, name)
		l.git("init", "-q", inner)
		l.in(inner, "commit", "-q", "--allow-empty", "-m", name)
		l.git("add", name)
	}
	open, _ := l.readIndex("sha1")
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
	l.git("update-index", "--skip-worktree", "two")
	some, _ := l.readIndex("sha1")
	if got := closed.WithSubmodulesLike(some); got.Fingerprint() != some.Fingerprint() {
		t.Error("not what is open there is open now")
	}
	if got := open.WithSubmodulesLike(closed); got.Fingerprint() != open.Fingerprint() {
		t.Error("what was open was closed")
	}
	if err := os.WriteFile(l.indexFile(), closed.WithSubmodulesLike(some).Encode(), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := l.git("ls-files", "-t", "one", "two"); got != "H one\nS two" {
		t.Errorf("git reads %q", got)
	}
}
