package gitagency

import (
	"context"
	"maps"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// pair is two sides to merge: two sandboxes, or the integration branch and a sandbox.
type pair struct{ a, b int }

const integrationSide = -1

func ontoIntegration(sandbox int) pair { return pair{integrationSide, sandbox} }

func (p pair) lands() bool { return p.a == integrationSide }

// pairs lists all pairs of readable sandboxes and the integration branch, sorted.
func (s *sweep) pairs() []pair {
	var all []pair
	for b := range s.boxes {
		if s.boxes[b].err != nil {
			continue
		}
		all = append(all, ontoIntegration(b))
		for a := range b {
			if s.boxes[a].err == nil {
				all = append(all, pair{a, b})
			}
		}
	}
	slices.SortFunc(all, func(p, q pair) int {
		if p.a != q.a {
			return p.a - q.a
		}
		return p.b - q.b
	})
	return all
}

// side returns the commit of a side, and the tree with the uncommitted work on top of it.
func (s *sweep) side(n int) (commit, tree string) {
	if n == integrationSide {
		return s.tip.Commit, s.tip.Tree
	}
	return s.boxes[n].head.Commit, s.boxes[n].tree
}

// mergeKey returns the cache key of a merge. It includes the integration tree, whose attributes say how files are merged.
func (s *sweep) mergeKey(p pair) string {
	ourCommit, ours := s.side(p.a)
	theirCommit, theirs := s.side(p.b)
	return factKey(ourCommit, ours, theirCommit, theirs, s.tip.Tree)
}

// mergeBase returns the merge base of a pair; empty if there is none or more than one.
func (s *sweep) base(p pair) string {
	bases := s.now.Bases[s.basesKey(p)]
	if len(bases) != 1 {
		return ""
	}
	return bases[0]
}

func (s *sweep) basesKey(p pair) string {
	ours, _ := s.side(p.a)
	theirs, _ := s.side(p.b)
	return factKey(ours, theirs)
}

// findBases finds the merge bases of all pairs.
func (s *sweep) findBases(ctx context.Context) error {
	keys := map[[2]string]string{}
	for _, p := range s.pairs() {
		if _, known := recalled(s.was.Bases, s.now.Bases, s.basesKey(p)); known {
			continue
		}
		ours, _ := s.side(p.a)
		theirs, _ := s.side(p.b)
		keys[[2]string{ours, theirs}] = s.basesKey(p)
	}
	if len(keys) == 0 {
		return nil
	}
	found, err := s.merger.Bases(ctx, slices.Collect(maps.Keys(keys)))
	for commits, key := range keys {
		s.now.Bases[key] = found[commits]
	}
	return err
}

// findTouched finds the paths that each side has changed since its merge base with another. It returns the sandboxes that
// have to be read first, because trees of uncommitted work are not stored between runs.
func (s *sweep) findTouched(ctx context.Context) (need []*box, err error) {
	keys := map[[2]string]string{}
	for _, p := range s.pairs() {
		base := s.base(p)
		_, merged := recalled(s.was.Merges, s.now.Merges, s.mergeKey(p))
		for _, n := range []int{p.a, p.b} {
			_, tree := s.side(n)
			key := factKey(base, tree)
			_, known := recalled(s.was.Touched, s.now.Touched, key)
			switch {
			case known || merged || base == "":
			case s.has(n):
				keys[[2]string{base, tree}] = key
			case !slices.Contains(need, s.boxes[n]):
				need = append(need, s.boxes[n])
			}
		}
	}
	if len(need) > 0 || len(keys) == 0 {
		return need, nil
	}
	found, err := s.merger.Touched(ctx, slices.Collect(maps.Keys(keys)))
	for commits, key := range keys {
		s.now.Touched[key] = touchFacts(found[commits])
	}
	return nil, err
}

// mergerHasTree reports whether the merger has the tree of a side.
func (s *sweep) has(n int) bool {
	return n == integrationSide || s.boxes[n].read || s.boxes[n].tree == s.boxes[n].head.Tree
}

// touchedPaths returns the paths that both sides have changed since their merge base. known is false if there is not
// exactly one base.
func (s *sweep) touched(p pair) (ours, theirs []git.Touch, known bool) {
	base := s.base(p)
	if base == "" {
		return nil, nil, false
	}
	_, a := s.side(p.a)
	_, b := s.side(p.b)
	return touches(s.now.Touched[factKey(base, a)]), touches(s.now.Touched[factKey(base, b)]), true
}

// pairsToMerge lists the pairs whose result is known only after a merge: those that touch related paths.
func (s *sweep) unknown() []pair {
	var left []pair
	for _, p := range s.pairs() {
		key := s.mergeKey(p)
		if _, known := recalled(s.was.Merges, s.now.Merges, key); known {
			continue
		}
		ours, theirs, known := s.touched(p)
		if !known || !git.Apart(ours, theirs) {
			left = append(left, p)
			continue
		}
		s.now.Merges[key] = mergeFact{Nothing: len(theirs) == 0}
	}
	return left
}

// unreadSides lists the sandboxes that have to be read before the merges, because trees of uncommitted work are not stored
// between runs.
func (s *sweep) unreadOf(merges []pair) []*box {
	var need []*box
	for _, p := range merges {
		for _, n := range []int{p.a, p.b} {
			if !s.has(n) && !slices.Contains(need, s.boxes[n]) {
				need = append(need, s.boxes[n])
			}
		}
	}
	return need
}

// mergePairs merges the pairs. If a merge with the integration branch cannot be attempted, that is an error of the sandbox.
func (s *sweep) mergeAll(ctx context.Context, pairs []pair) error {
	merges := make([]*merge, len(pairs))
	commits := map[int]string{integrationSide: s.tip.Commit}
	for i, p := range pairs {
		for _, n := range []int{p.a, p.b} {
			if _, there := commits[n]; there {
				continue
			}
			var err error
			if commits[n], err = s.commit(ctx, s.boxes[n]); err != nil {
				return err
			}
		}
		merges[i] = &merge{pair: p, what: git.Merging{Ours: commits[p.a], Theirs: commits[p.b], Attributes: s.tip.Commit}}
	}
	parallel(merges, func(m *merge) { m.made, m.err = s.merger.Merge(ctx, m.what) })
	for _, m := range merges {
		_, ours := s.side(m.a)
		fact := mergeFact{Nothing: m.made.Tree == ours}
		for _, c := range m.made.Conflicts {
			fact.Conflicts = append(fact.Conflicts, []byte(c.Path))
		}
		switch {
		case m.err == nil:
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case m.lands():
			s.boxes[m.b].err = m.err
			continue
		case is[*git.UnrelatedError](m.err):
			fact = mergeFact{Unrelated: true}
		case s.faulty(m.a) || s.faulty(m.b): // reported for that sandbox
			continue
		default:
			return m.err
		}
		s.now.Merges[s.mergeKey(m.pair)] = fact
	}
	return nil
}

// pairMerge is one merge to compute.
type merge struct {
	pair
	what git.Merging
	made git.Merged
	err  error
}

// workCommit returns a commit with the whole content of a sandbox. Its date is later than that of any other commit, because
// git searches for merge bases from the newest commit on.
func (s *sweep) commit(ctx context.Context, b *box) (string, error) {
	if b.tree == b.head.Tree {
		return b.head.Commit, nil
	}
	who := git.Signature{Identity: toolIdentity, When: "4102444800 +0000"}
	return s.merger.Commit(ctx, git.NewCommit{Tree: b.tree, Parents: []string{b.head.Commit}, Author: who, Committer: who, Message: "work"})
}
