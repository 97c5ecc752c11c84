package merge

import (
	"fmt"
	rand "math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// MergeBases returns the same merge bases as git merge-base --all, for pairs of commits of a random history.
func TestMergeBasesMatchGit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	m := repotest.NewMirror(l)
	random := rand.New(rand.NewPCG(7, 7))
	tree, ids := l.Git("rev-parse", "HEAD^{tree}"), []string{l.Git("rev-parse", "HEAD")}
	for n := range 24 {
		args := []string{"commit-tree", "-m", fmt.Sprint(n), tree}
		for _, p := range random.Perm(len(ids))[:min(len(ids), 1+random.IntN(2))] {
			args = append(args, "-p", ids[max(p, len(ids)-6)])
		}
		ids = append(ids, l.Git(args...))
	}
	compared, several := 0, 0
	for range 12 {
		var pairs [][2]string
		for range 2 {
			pairs = append(pairs, [2]string{ids[random.IntN(len(ids))], ids[random.IntN(len(ids))]})
		}
		found, err := MergeBases(t.Context(), m, pairs)
		l.Must(err)
		for _, p := range pairs {
			got, known := found[p]
			if !known {
				continue // left to git
			}
			want := strings.Fields(l.Git("merge-base", "--all", p[0], p[1]))
			if slices.Sort(want); !slices.Equal(got, want) {
				t.Errorf("%v: got %v, want %v", p, got, want)
			}
			if compared++; len(want) > 1 {
				several++
			}
		}
	}
	if compared+100*several < 110 {
		t.Errorf("only %d pairs compared, %d of them with several merge bases", compared, several)
	}
	alone := l.Git("commit-tree", "-m", "alone", tree)
	if found, err := MergeBases(t.Context(), m, [][2]string{{alone, ids[0]}}); err != nil || len(found) != 0 {
		t.Errorf("unrelated commits: %v, %v", found, err)
	}
}
