package git

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

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
		if err := l.m.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, ok, err := l.m.diffTrees(t.Context(), trees[0], trees[1])
		if err != nil || !ok {
			t.Fatalf("%t, %v", ok, err)
		}
		want, err := l.m.repo.treeChanges(t.Context(), runOptions{}, trees[0], trees[1])
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range [][]treeChange{got, want} {
			slices.SortFunc(list, func(a, b treeChange) int { return cmp.Compare(a.path, b.path) })
		}
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: %v\nto %v\ngot %v\ngit %v", seed, names(from), names(to), got, want)
		}
	})
}
