package git

import (
	"fmt"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

func TestRefsReadFromTheirFilesAreThoseThatGitSees(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := OpenRepo(l)
	one := l.Git("rev-parse", "main")
	two := l.Git("commit-tree", "-m", "two", "main^{tree}")
	same := func(when string, quick bool) {
		t.Helper()
		got, ok := repo.readRefFiles([]string{"refs/agency/x/"})
		if ok != quick {
			t.Fatalf("%s: read at once: %v", when, ok)
		}
		if !ok {
			return
		}
		asked := *repo
		asked.Config = nil
		want, err := asked.Refs(t.Context(), "refs/agency/x/")
		l.Must(err)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, git says %v", when, got, want)
		}
		for _, ref := range []string{"refs/agency/x/1", "refs/agency/x/10", "refs/agency/x/deep", "refs/agency/x/deep/er/2", "refs/agency/x/0"} {
			if tip, ok := repo.ReadRefFile(ref); !ok || tip != want[ref] {
				t.Errorf("%s: %s at %q, %v; git says %q", when, ref, tip, ok, want[ref])
			}
		}
	}
	same("without any", true)
	l.Git("update-ref", "refs/agency/x/1", one)
	l.Git("update-ref", "refs/agency/xy/1", one)
	l.Git("update-ref", "refs/agency/x/deep/er/2", one)
	same("with files", true)
	l.Git("pack-refs", "--all")
	same("packed", true)
	l.Git("update-ref", "refs/agency/x/1", two)
	l.Git("update-ref", "refs/agency/x/10", two)
	same("both", true)
	l.Git("update-ref", "-d", "refs/agency/x/deep/er/2")
	l.WriteIn(repo.CommonDir, "refs/agency/x/7.lock", "")
	same("with a lock", true)
	l.Git("symbolic-ref", "refs/agency/x/9", "refs/heads/main")
	if tip, ok := repo.ReadRefFile("refs/agency/x/9"); ok {
		t.Errorf("a symbolic ref is at %q", tip)
	}
	same("with a symbolic one", false)
}
