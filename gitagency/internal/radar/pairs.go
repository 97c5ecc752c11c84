package radar

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sort"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// pair is two sides to merge: two sandboxes, or the integration branch and a sandbox.
type pair struct{ a, b int }

const integrationSide = -1

func integrationPair(sandbox int) pair { return pair{integrationSide, sandbox} }

func (p pair) withIntegration() bool { return p.a == integrationSide }

// pairs lists the pairs of readable sandboxes and the integration branch, sorted: all of them, or those of one sandbox with
// other sandboxes.
func (s *forecast) pairs() []pair {
	var all []pair
	for b := range s.sandboxes {
		if s.sandboxes[b].err != nil {
			continue
		}
		if s.only == "" {
			all = append(all, integrationPair(b))
		}
		for a := range b {
			if s.sandboxes[a].err == nil && (s.only == "" || s.sandboxes[a].inv.ID == s.only || s.sandboxes[b].inv.ID == s.only) {
				all = append(all, pair{a, b})
			}
		}
	}
	sort.Slice(all, func(i, j int) bool { return cmp.Or(all[i].a-all[j].a, all[i].b-all[j].b) < 0 })
	return all
}

// side returns the commit of a side, and the tree with the uncommitted work on top of it.
func (s *forecast) side(n int) (commit, tree string) {
	if n == integrationSide {
		return s.tip.Commit, s.tip.Tree
	}
	return s.sandboxes[n].head.Commit, s.sandboxes[n].tree
}

// mergeKey returns the cache key of a merge. It includes the integration tree, whose attributes say how files are merged.
func (s *forecast) mergeKey(p pair) string {
	ourCommit, ours := s.side(p.a)
	theirCommit, theirs := s.side(p.b)
	return factKey(ourCommit, ours, theirCommit, theirs, s.tip.Tree)
}

// mergeBase returns the merge base of a pair; empty if there is none or more than one.
func (s *forecast) mergeBase(p pair) string {
	bases := s.facts.Bases[s.basesKey(p)]
	if len(bases) != 1 {
		return ""
	}
	return bases[0]
}

func (s *forecast) basesKey(p pair) string {
	ours, _ := s.side(p.a)
	theirs, _ := s.side(p.b)
	return factKey(ours, theirs)
}

// findBases finds the merge bases of all pairs.
func (s *forecast) findBases(ctx context.Context) error {
	keys := map[[2]string]string{}
	for _, p := range s.pairs() {
		if _, known := reuseFact(s.oldFacts.Bases, s.facts.Bases, s.basesKey(p)); known {
			continue
		}
		ours, _ := s.side(p.a)
		theirs, _ := s.side(p.b)
		keys[[2]string{ours, theirs}] = s.basesKey(p)
	}
	if len(keys) == 0 {
		return nil
	}
	found, err := merge.MergeBases(ctx, s.merger.Mirror, slices.Collect(maps.Keys(keys)))
	for commits, key := range keys {
		s.facts.Bases[key] = found[commits]
	}
	return err
}

// findTouched finds the paths that each side has changed since its merge base with another. It returns the sandboxes that
// have to be read first, because trees of uncommitted work are not stored between runs.
func (s *forecast) findTouched(ctx context.Context) (need []*sandboxState, err error) {
	keys := map[[2]string]string{}
	for _, p := range s.pairs() {
		base := s.mergeBase(p)
		_, merged := reuseFact(s.oldFacts.Merges, s.facts.Merges, s.mergeKey(p))
		for _, n := range []int{p.a, p.b} {
			_, tree := s.side(n)
			key := factKey(base, tree)
			_, known := reuseFact(s.oldFacts.Touched, s.facts.Touched, key)
			switch {
			case known || merged || base == "":
			case s.mergerHasTree(n):
				keys[[2]string{base, tree}] = key
			case !slices.Contains(need, s.sandboxes[n]):
				need = append(need, s.sandboxes[n])
			}
		}
	}
	if len(need) > 0 || len(keys) == 0 {
		return need, nil
	}
	found, err := merge.TouchedPaths(ctx, s.merger.Mirror, slices.Collect(maps.Keys(keys)))
	for commits, key := range keys {
		s.facts.Touched[key] = encodeTouches(found[commits])
	}
	return nil, err
}

// mergerHasTree reports whether the merger has the tree of a side.
func (s *forecast) mergerHasTree(n int) bool {
	return n == integrationSide || s.sandboxes[n].inMerger || s.sandboxes[n].tree == s.sandboxes[n].head.Tree
}

// touchedPaths returns the paths that both sides have changed since their merge base. known is false if there is not
// exactly one base.
func (s *forecast) touchedPaths(p pair) (ours, theirs []merge.TouchedPath, known bool) {
	base := s.mergeBase(p)
	if base == "" {
		return nil, nil, false
	}
	_, a := s.side(p.a)
	_, b := s.side(p.b)
	return decodeTouches(s.facts.Touched[factKey(base, a)]), decodeTouches(s.facts.Touched[factKey(base, b)]), true
}

// pairsToMerge lists the pairs whose result is known only after a merge: those that touch related paths.
func (s *forecast) pairsToMerge() []pair {
	var left []pair
	for _, p := range s.pairs() {
		key := s.mergeKey(p)
		if _, known := reuseFact(s.oldFacts.Merges, s.facts.Merges, key); known {
			continue
		}
		ours, theirs, known := s.touchedPaths(p)
		if !known || !merge.CannotConflict(ours, theirs) {
			left = append(left, p)
			continue
		}
		s.facts.Merges[key] = mergeFact{NothingNew: len(theirs) == 0}
	}
	return left
}

// unreadSides lists the sandboxes that have to be read before the merges, because trees of uncommitted work are not stored
// between runs.
func (s *forecast) unreadSides(merges []pair) []*sandboxState {
	var need []*sandboxState
	for _, p := range merges {
		for _, n := range []int{p.a, p.b} {
			if !s.mergerHasTree(n) && !slices.Contains(need, s.sandboxes[n]) {
				need = append(need, s.sandboxes[n])
			}
		}
	}
	return need
}

// mergePairs merges the pairs. If a merge with the integration branch cannot be attempted, that is an error of the sandbox.
func (s *forecast) mergePairs(ctx context.Context, pairs []pair) error {
	merges := make([]*pairMerge, len(pairs))
	commits := map[int]string{integrationSide: s.tip.Commit}
	for i, p := range pairs {
		for _, n := range []int{p.a, p.b} {
			if _, there := commits[n]; there {
				continue
			}
			var err error
			if commits[n], err = s.workCommit(ctx, s.sandboxes[n]); err != nil {
				return err
			}
		}
		merges[i] = &pairMerge{pair: p, input: merge.Request{Ours: commits[p.a], Theirs: commits[p.b], Attributes: s.tip.Commit}}
	}
	proc.Parallel(merges, func(m *pairMerge) { m.result, m.err = s.merger.Merge(ctx, m.input) })
	for _, m := range merges {
		_, ours := s.side(m.a)
		fact := mergeFact{NothingNew: m.result.Tree == ours}
		for _, c := range m.result.Conflicts {
			fact.Conflicts = append(fact.Conflicts, []byte(c.Path))
		}
		switch {
		case m.err == nil:
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case m.withIntegration():
			s.sandboxes[m.b].err = m.err
			continue
		case fault.Is[*merge.UnrelatedError](m.err):
			fact = mergeFact{Unrelated: true}
		case s.only != "" || s.isFaulty(m.a) || s.isFaulty(m.b): // Compute reports it for that sandbox
			continue
		case fault.Is[*fault.ReadLimitError](m.err): // it is unknown because of which of them
			s.sandboxes[m.a].err, s.sandboxes[m.b].err = m.err, m.err
			continue
		default:
			return m.err
		}
		s.facts.Merges[s.mergeKey(m.pair)] = fact
	}
	return nil
}

// pairMerge is one merge to compute.
type pairMerge struct {
	pair
	input  merge.Request
	result merge.Result
	err    error
}

// workCommit returns a commit with the whole content of a sandbox. Its date is later than that of any other commit, because
// git searches for merge bases from the newest commit on.
func (s *forecast) workCommit(ctx context.Context, b *sandboxState) (string, error) {
	if b.tree == b.head.Tree {
		return b.head.Commit, nil
	}
	who := object.Signature{Identity: core.ToolIdentity, When: "4102444800 +0000"}
	return s.merger.CreateCommit(ctx, merge.CommitRequest{Tree: b.tree, Parents: []string{b.head.Commit}, Author: who, Committer: who, Message: "work"})
}
