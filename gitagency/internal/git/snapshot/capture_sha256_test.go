package snapshot

import (
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

func TestCaptureInSHA256Repository(t *testing.T) {
	t.Parallel()
	l := gittest.NewEmpty(t)
	l.Git("init", "-q", "-b", "main", "--object-format=sha256", ".")
	l.Write("a.txt", "a\n")
	l.Commit("first")
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	if status := l.GitIn(w.Tree, "status", "--porcelain"); status != "" {
		t.Errorf("status: %q", status)
	}
	l.WriteIn(w.Tree, "a.txt", "changed\n")
	got := captureSpec(l, repo, repotest.SpecOf(l, w))
	gittest.RequireSame(t, "captured", l.Files(got.Commit), map[string]string{"a.txt": "100644 changed\n"})
	l.Must(repo.DeleteRef(t.Context(), w.Branch, got.BranchTip))
	if found, err := repo.Lookup(t.Context(), w.Branch, got.Commit, strings.Repeat("1", 64)); err != nil || !found[0].Missing() || found[1].OID != got.Commit || !found[2].Missing() {
		t.Errorf("got %v, %v", found, err)
	}
}
