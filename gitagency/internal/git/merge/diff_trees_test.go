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
func FuzzDiffTreesMatchesGit(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	l := newMergeLab(f)
	f.Fuzz(func(t *testing.T, seed uint64) {
		g := &fileGenerator{rand: rand.New(rand.NewPCG(seed, 11))}
		from := g.randomFiles()
		to := maps.Clone(from)
		for range g.rand.IntN(6) {
			g.changeRandomly(to)
		}
		trees := []string{l.writeTree(t, from), l.writeTree(t, to)}
		if err := l.merger.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, ok, err := l.merger.DiffTrees(t.Context(), trees[0], trees[1])
		if err != nil || !ok {
			t.Fatalf("DiffTrees: %t, %v", ok, err)
		}
		want, err := l.merger.Repo.TreeChanges(t.Context(), git.RunOptions{}, trees[0], trees[1])
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range [][]git.TreeChange{got, want} {
			slices.SortFunc(list, func(a, b git.TreeChange) int { return cmp.Compare(a.Path, b.Path) })
		}
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: %v\nto %v\ngot %v\ngit %v", seed, describeFiles(from), describeFiles(to), got, want)
		}
	})
}
