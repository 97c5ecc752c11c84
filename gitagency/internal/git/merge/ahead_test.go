package merge

import (
	"fmt"
	rand "math/rand/v2"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// CountAhead counts as git rev-list --count does, for commits of a random history.
func TestCountAheadMatchesGit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	m := repotest.NewMirror(l)
	random := rand.New(rand.NewPCG(3, 5))
	tree, ids := l.Git("rev-parse", "HEAD^{tree}"), []string{l.Git("rev-parse", "HEAD")}
	ids = append(ids, l.Git("commit-tree", "-m", "unrelated", tree))
	for n := range 20 {
		args := []string{"commit-tree", "-m", fmt.Sprint(n), tree}
		for _, p := range random.Perm(len(ids))[:min(len(ids), 1+random.IntN(2))] {
			args = append(args, "-p", ids[p])
		}
		ids = append(ids, l.Git(args...))
	}
	for _, upstream := range []string{ids[0], ids[len(ids)/2], ids[len(ids)-1]} {
		counts, err := CountAhead(t.Context(), m.Repo, upstream, ids)
		l.Must(err)
		for _, id := range ids {
			if got, want := fmt.Sprint(counts[id]), l.Git("rev-list", "--count", upstream+".."+id); got != want {
				t.Errorf("%s..%s: got %s, want %s", upstream, id, got, want)
			}
		}
	}
	if counts, err := CountAhead(t.Context(), m.Repo, ids[0], nil); err != nil || len(counts) != 0 {
		t.Errorf("no commits: %v, %v", counts, err)
	}
	for _, bad := range []string{"HEAD", "--all", ""} {
		if _, err := CountAhead(t.Context(), m.Repo, ids[0], []string{bad}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
