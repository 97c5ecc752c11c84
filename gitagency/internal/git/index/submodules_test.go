package index

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// With WithSubmodulesSkipped, git must not run in a repository nested in the worktree, where it would run programs from
// its configuration. The case without it shows that git does.
func TestSkippedSubmodulesKeepGitOutOfNestedRepository(t *testing.T) {
	t.Parallel()
	for _, skipped := range []bool{false, true} {
		l := gittest.New(t)
		canary := filepath.Join(t.TempDir(), "canary")
		inner := filepath.Join(l.Root, "inner")
		l.Git("init", "-q", inner)
		l.GitIn(inner, "commit", "-q", "--allow-empty", "-m", "inner")
		l.Git("add", "inner")
		l.GitIn(inner, "config", "core.fsmonitor", "touch "+canary+"; :")
		index, _ := readIndexFile(l, "sha1")
		if skipped {
			index = index.WithSubmodulesSkipped()
			if again := index.WithSubmodulesSkipped(); string(again.Encode()) != string(index.Encode()) {
				t.Error("a second WithSubmodulesSkipped changed the index")
			}
		}
		if err := os.WriteFile(indexPath(l), index.Encode(), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"status"}, {"diff"}, {"diff", "--cached"}, {"ls-files", "-m"}, {"stash", "list"}, {"add", "-u"}} {
			l.Git(args...)
		}
		if _, err := os.Stat(canary); (err == nil) == skipped {
			t.Errorf("skipped %t, canary file: %v", skipped, err)
		}
		if got := l.Git("ls-files", "-s"); skipped && len(got) == 0 {
			t.Error("the submodule is no longer in the index")
		}
	}
}

// WithSubmodulesUnskippedLike must remove the skip-worktree mark of exactly the submodules that have none in the other index.
func TestWithSubmodulesLikeRestoresUnskipped(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	for _, name := range []string{"one", "two"} {
		inner := filepath.Join(l.Root, name)
		l.Git("init", "-q", inner)
		l.GitIn(inner, "commit", "-q", "--allow-empty", "-m", name)
		l.Git("add", name)
	}
	plain, _ := readIndexFile(l, "sha1")
	skipped := plain.WithSubmodulesSkipped()
	if !plain.AnySubmoduleUnskipped() || plain.AnySubmoduleSkipped() || skipped.AnySubmoduleUnskipped() || !skipped.AnySubmoduleSkipped() {
		t.Error("wrong report of skipped or unskipped submodules")
	}
	if again := skipped.WithSubmodulesUnskippedLike(plain); again.Fingerprint() != plain.Fingerprint() {
		t.Error("the index without skipped submodules is not the original")
	}
	if same := skipped.WithSubmodulesUnskippedLike(skipped); same.Fingerprint() != skipped.Fingerprint() {
		t.Error("a submodule that is skipped in both was unskipped")
	}
	l.Git("update-index", "--skip-worktree", "two")
	some, _ := readIndexFile(l, "sha1")
	if got := skipped.WithSubmodulesUnskippedLike(some); got.Fingerprint() != some.Fingerprint() {
		t.Error("not exactly the submodules unskipped in the other index were unskipped")
	}
	if got := plain.WithSubmodulesUnskippedLike(skipped); got.Fingerprint() != plain.Fingerprint() {
		t.Error("an unskipped submodule was skipped")
	}
	if err := os.WriteFile(indexPath(l), skipped.WithSubmodulesUnskippedLike(some).Encode(), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := l.Git("ls-files", "-t", "one", "two"); got != "H one\nS two" {
		t.Errorf("git reads %q", got)
	}
}
