package git

import (
	"testing"
)

// An index in which nothing is staged is not one that nobody can read.
func TestAStateKnowsThatNothingIsStaged(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	repo := l.open()
	w := l.sandbox(repo)
	l.in(w.Tree, "rm", "-r", "-q", "--cached", ".")
	commit := l.freeze(repo, w, "")
	if got, want := l.trailer(commit, indexTrailer), l.index(w); got != want {
		t.Errorf("staged is %s, want the empty tree %s", got, want)
	}
	requireSame(t, "what is on disk", l.files(commit), l.files("main"))
}

