package snapshot

import (
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

func TestCoversRequiresAllEarlierContent(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	capture := func() string {
		t.Helper()
		got, err := Capture(t.Context(), repo, git.WorktreeSpec{Name: w.Name, Dir: w.Tree, Branch: w.Branch, Message: "m", Author: object.Identity{Name: "tool", Email: "tool@localhost"}})
		l.Must(err)
		return got.Commit
	}
	covers := func(what string, later, earlier string, want bool) {
		t.Helper()
		if got, err := Covers(t.Context(), repo, later, earlier); got != want || err != nil {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	l.WriteIn(w.Tree, "untracked", "u\n")
	l.WriteIn(w.Tree, "staged", "s\n")
	l.GitIn(w.Tree, "add", "staged")
	l.GitIn(w.Tree, "commit", "-q", "--allow-empty", "-m", "forgotten")
	l.GitIn(w.Tree, "reset", "-q", "--soft", "HEAD~1")
	l.WriteIn(w.Tree, "staged", "and changed\n")
	before := capture()
	covers("itself", before, before, true)
	covers("an unchanged worktree", capture(), before, true)
	l.GitIn(w.Tree, "commit", "-q", "-m", "on top")
	covers("the index was committed", capture(), before, false)
	covers("an earlier capture of a later one", before, capture(), false)
	covers("no commit", "", before, false)
}
