package merge

import (
	"cmp"
	"maps"
	rand "math/rand/v2"
	"slices"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// DiffTrees lists the same changes between random trees as git diff-tree.
func FuzzChangesAreWhatGitLists(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	l := newMergeLab(f)
	f.Fuzz(func(t *testing.T, seed uint64) {
		g := &grower{rand: rand.New(rand.NewPCG(seed, 11))}
		from := g.base()
		to := maps.Clone(from)
		for range g.rand.IntN(6) {
			g.change(to)
		}
		trees := []string{l.plant(t, from), l.plant(t, to)}
		if err := l.m.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, ok, err := l.m.DiffTrees(t.Context(), trees[0], trees[1])
		if err != nil || !ok {
			t.Fatalf("DiffTrees: %t, %v", ok, err)
		}
		want, err := l.m.Repo.TreeChanges(t.Context(), git.RunOptions{}, trees[0], trees[1])
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range [][]git.TreeChange{got, want} {
			slices.SortFunc(list, func(a, b git.TreeChange) int { return cmp.Compare(a.Path, b.Path) })
		}
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: %v\nto %v\ngot %v\ngit %v", seed, names(from), names(to), got, want)
		}
	})
}
