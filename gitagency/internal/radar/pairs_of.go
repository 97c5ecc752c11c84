package radar

import (
	"context"
	"errors"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/core"
)

// PairsOf is Compute for the pairs of one sandbox with the other live sandboxes that land on the same branch. A is that
// sandbox in each pair. It costs one scan of each of them, and nothing if there is no other. Another sandbox that cannot be
// read or merged is in no pair.
func PairsOf(ctx context.Context, r *core.Repository, id string) (_ []Pair, err error) {
	inv, err := r.Invocation(id)
	if err != nil {
		return nil, err
	}
	wt, err := r.Worktree(inv.WorktreeID)
	if err != nil {
		return nil, err
	}
	name, err := r.IntegrationRev(ctx, wt, inv.IntegrationBranch)
	if err != nil {
		return nil, err
	}
	group, err := liveBeside(ctx, r, wt, name)
	if err != nil || !slices.ContainsFunc(group, func(other core.Invocation) bool { return other.ID != inv.ID }) {
		return nil, err
	}
	f, err := newForecast(ctx, r, wt, name, group)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	f.only = inv.ID
	if f.merger != nil { // else the branch does not exist, which is an error of each sandbox
		err = f.compute(ctx) // its facts are not saved: those of other pairs would be dropped
	}
	for _, b := range f.sandboxes {
		if b.inv.ID == inv.ID {
			err = errors.Join(err, b.err)
		}
	}
	if err != nil {
		return nil, err
	}
	return f.pairsOfOne(), nil
}

// liveBeside lists the live sandboxes of a worktree that land on the branch called name.
func liveBeside(ctx context.Context, r *core.Repository, wt core.Worktree, name string) ([]core.Invocation, error) {
	group, err := r.Invocations(core.ListRequest{Worktree: wt.ID})
	if err != nil {
		return nil, err
	}
	group = slices.DeleteFunc(group, func(inv core.Invocation) bool {
		rev, revErr := r.IntegrationRev(ctx, wt, inv.IntegrationBranch)
		err = errors.Join(err, revErr)
		return rev != name || inv.Verifies != ""
	})
	return group, err
}

// pairsOfOne returns the pairs whose merge is known, with the sandbox that the forecast is about as A.
func (s *forecast) pairsOfOne() []Pair {
	var found []Pair
	for _, p := range s.pairs() {
		m, known := s.facts.Merges[s.mergeKey(p)]
		if !known {
			continue
		}
		a, b := s.sandboxes[p.a].inv.ID, s.sandboxes[p.b].inv.ID
		if b == s.only {
			a, b = b, a
		}
		found = append(found, Pair{A: a, B: b, Clean: m.clean(), Paths: m.paths()})
	}
	return found
}
