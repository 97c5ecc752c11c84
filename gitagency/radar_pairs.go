package gitagency

import (
	"context"
	"maps"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// pair is two sides that are held against each other: a sandbox and another, or the integration branch and a sandbox.
type pair struct{ a, b int }

const integrationSide = -1

func ontoIntegration(box int) pair { return pair{integrationSide, box} }

func (p pair) lands() bool { return p.a == integrationSide }

// pairs are all that are held against each other.
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

// side is what is merged there: a tree, on top of a commit.
func (s *sweep) side(n int) (commit, tree string) {
	if n == integrationSide {
		return s.tip.Commit, s.tip.Tree
	}
	return s.boxes[n].head.Commit, s.boxes[n].tree
}

// mergeKey names a merge. How files are merged is said by the attributes of the integration branch.
func (s *sweep) mergeKey(p pair) string {
	ourCommit, ours := s.side(p.a)
	theirCommit, theirs := s.side(p.b)
	return factKey(ourCommit, ours, theirCommit, theirs, s.tip.Tree)
}

// base is what both sides of a pair have in common; empty where that is more than one commit, or nothing.
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

// findBases finds what every two have in common.
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
	for ask, key := range keys {
		s.now.Bases[key] = found[ask]
	}
	return err
}

// findTouched finds what every side has changed of what it has in common with another. It may need sandboxes to be looked
// at for that: what was in them the last time is not kept.
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
	for ask, key := range keys {
		s.now.Touched[key] = touchFacts(found[ask])
	}
	return nil, err
}

// has reports whether the merger has what is on a side.
func (s *sweep) has(n int) bool {
	return n == integrationSide || s.boxes[n].read || s.boxes[n].tree == s.boxes[n].head.Tree
}

// touched is what both sides have changed of what they have in common. It is not known where that is not one commit.
func (s *sweep) touched(p pair) (ours, theirs []git.Touch, known bool) {
	base := s.base(p)
	if base == "" {
		return nil, nil, false
	}
	_, a := s.side(p.a)
	_, b := s.side(p.b)
	return touches(s.now.Touched[factKey(base, a)]), touches(s.now.Touched[factKey(base, b)]), true
}

// unknown lists the pairs that have to be merged to know what comes of it.
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

// unreadOf lists the sandboxes that have to be read to be merged: what was in them the last time is not kept.
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

// mergeAll merges. What cannot even be tried is an error of the sandbox, if it is about landing that.
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
		case s.faulty(m.a) || s.faulty(m.b): // of which that is said
			continue
		default:
			return m.err
		}
		s.now.Merges[s.mergeKey(m.pair)] = fact
	}
	return nil
}

// merge is one that has to be made.
type merge struct {
	pair
	what git.Merging
	made git.Merged
	err  error
}

// commit is one that has all that is in a sandbox. Its time is later than any other's: git looks for what commits have in
// common from the latest on.
func (s *sweep) commit(ctx context.Context, b *box) (string, error) {
	if b.tree == b.head.Tree {
		return b.head.Commit, nil
	}
	who := git.Signature{Identity: toolIdentity, When: "4102444800 +0000"}
	return s.merger.Commit(ctx, git.NewCommit{Tree: b.tree, Parents: []string{b.head.Commit}, Author: who, Committer: who, Message: "work"})
}
