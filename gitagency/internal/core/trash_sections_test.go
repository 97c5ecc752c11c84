package core

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

func TestPathsOfCommit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	blob := l.MakeBlob("x")
	tree := l.MakeTree("100644 blob "+blob+"\tfile", "160000 commit "+l.Git("rev-parse", "HEAD")+"\tsub", "040000 tree "+l.MakeTree("100644 blob "+blob+"\tf")+"\tdir")
	for _, c := range []struct {
		what string
		list func() (pathSet, error)
		want []string
	}{
		{"files", func() (pathSet, error) { return listTracked(t.Context(), repo, tree) }, []string{"dir/f", "file", "sub"}},
		{"submodules", func() (pathSet, error) { return listSubmodules(t.Context(), repo, tree) }, []string{"sub"}},
		{"files of no commit", func() (pathSet, error) { return listTracked(t.Context(), repo, "") }, nil},
	} {
		set, err := c.list()
		if got := slices.Sorted(maps.Keys(set.paths)); err != nil || set.all || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v %v %v", c.what, got, set.all, err)
		}
	}
}

// An agent can commit some trees, of which each has the next under two names, so that git ls-tree -r does not end. An
// archive then keeps every file, as those of the commit are unknown.
func TestPathsOfNestedTreesAreUnknown(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo := repotest.OpenRepo(l)
	repo.ReadLimits = readlimit.Limits{Time: time.Minute, Output: 1 << 20}
	tree := l.MakeTree("100644 blob " + l.MakeBlob("x") + "\tf")
	for range 30 {
		tree = l.MakeTree("040000 tree "+tree+"\ta", "040000 tree "+tree+"\tb")
	}
	gittest.Within(t, "the list of files", func() {
		for _, list := range []func() (pathSet, error){
			func() (pathSet, error) { return listTracked(t.Context(), repo, tree) },
			func() (pathSet, error) { return listSubmodules(t.Context(), repo, tree) },
		} {
			if set, err := list(); err != nil || !set.has("any") {
				t.Error(set.all, err)
			}
		}
	})
}
