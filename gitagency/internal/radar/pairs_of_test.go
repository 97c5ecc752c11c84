package radar

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// PairsOf agrees with Compute about the pairs of one sandbox, computes no others, and leaves the facts of Compute alone.
func TestPairsOfAgreesWithCompute(t *testing.T) {
	t.Parallel()
	l := newRadarRepo(t, 4)
	mine := l.sandboxes[1].ID
	l.writeFileIn(l.sandboxes[0].Tree, "a", "one\n")
	l.writeFileIn(l.sandboxes[1].Tree, "a", "two\n")
	l.writeFileIn(l.sandboxes[1].Tree, "b", "two\n")
	l.commitIn(l.sandboxes[2].Tree, "work", func(dir string) { l.writeFileIn(dir, "a", "three\n") })
	l.writeFileIn(l.sandboxes[2].Tree, "b", "three\n")
	l.writeFileIn(l.sandboxes[3].Tree, "dir/c", "four\n")
	pairsOf := func() map[string]Pair {
		t.Helper()
		pairs, err := PairsOf(t.Context(), l.Repo, mine)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]Pair{}
		for _, p := range pairs {
			if p.A != mine {
				t.Errorf("got %+v", p)
			}
			found[p.B] = p
		}
		return found
	}
	compare := func(got map[string]Pair) {
		t.Helper()
		others := 0
		for _, want := range l.runRadar().Pairs {
			other := want.B
			if want.B == mine {
				other = want.A
			} else if want.A != mine {
				continue
			}
			others++
			if p, known := got[other]; !known || p.Clean != want.Clean || !slices.Equal(p.Paths, want.Paths) {
				t.Errorf("got %+v, want %+v", p, want)
			}
		}
		if others != len(got) {
			t.Errorf("got %+v, want %d pairs", got, others)
		}
	}
	first := pairsOf()
	if p := first[l.sandboxes[2].ID]; p.Clean || !slices.Equal(p.Paths, []string{"a", "b"}) {
		t.Errorf("got %+v", p)
	}
	compare(first)
	wt, err := l.Repo.Worktree("radar")
	if err != nil {
		t.Fatal(err)
	}
	facts := filepath.Join(l.Repo.Store.RadarDir(l.Repo.ID), factCacheName(wt.ID, "refs/heads/"+wt.Branch))
	before, err := os.ReadFile(facts)
	if err != nil {
		t.Fatal(err)
	}
	l.writeFileIn(l.sandboxes[0].Tree, "a", "two\n") // now the same as in sandbox 1
	l.writeFileIn(l.sandboxes[3].Tree, "b", "four\n")
	second := pairsOf()
	if after, err := os.ReadFile(facts); err != nil || string(after) != string(before) {
		t.Errorf("the facts have changed: %v\n%s\n%s", err, before, after)
	}
	if !second[l.sandboxes[0].ID].Clean || second[l.sandboxes[3].ID].Clean {
		t.Errorf("got %+v", second)
	}
	compare(second)
}

// A sandbox that cannot be read takes no pair of others away; a sandbox of another worktree, or none, costs nothing.
func TestPairsOfLeavesOutUnreadableSandboxes(t *testing.T) {
	t.Parallel()
	l := newRadarRepo(t, 3)
	for i, text := range []string{"one\n", "two\n", "three\n"} {
		l.writeFileIn(l.sandboxes[i].Tree, "a", text)
	}
	if err := os.RemoveAll(filepath.Join(l.sandboxes[2].Tree, ".agency")); err != nil {
		t.Fatal(err)
	}
	pairs, err := PairsOf(t.Context(), l.Repo, l.sandboxes[0].ID)
	if err != nil || len(pairs) != 1 || pairs[0].B != l.sandboxes[1].ID || pairs[0].Clean {
		t.Errorf("got %+v, %v", pairs, err)
	}
	if pairs, err := PairsOf(t.Context(), l.Repo, l.sandboxes[2].ID); err == nil {
		t.Errorf("got %+v for a sandbox without its marker", pairs)
	}
	if pairs, err := PairsOf(t.Context(), l.Repo, l.Sandbox.ID); err != nil || len(pairs) != 0 { // alone in its worktree
		t.Errorf("got %+v, %v", pairs, err)
	}
}
