package radar

import (
	"context"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// fsckKey returns the cache key for the check of a sandbox: its commits since fsckBase, and its uncommitted work.
func (s *forecast) fsckKey(i int) string {
	b := s.sandboxes[i]
	return factKey("sound", s.fsckBase(i), b.head.Commit, b.tree)
}

// fsckBase returns the merge base of a sandbox and the integration branch. Without a single base it is the branch's commit,
// whose objects are known to be valid.
func (s *forecast) fsckBase(i int) string {
	if base := s.mergeBase(integrationPair(i)); base != "" {
		return base
	}
	return s.tip.Commit
}

// unchecked lists the sandboxes without a cached check result. A forecast of pairs alone needs none.
func (s *forecast) unchecked() []int {
	if s.only != "" {
		return nil
	}
	var left []int
	for i, b := range s.sandboxes {
		if b.err != nil {
			continue
		}
		if _, known := reuseFact(s.oldFacts.Refused, s.facts.Refused, s.fsckKey(i)); !known {
			left = append(left, i)
		}
	}
	return left
}

// fsckSandboxes checks sandboxes for objects that a landing would refuse, whatever they conflict with.
func (s *forecast) fsckSandboxes(ctx context.Context, unjudged []int) error {
	found := make([]error, len(s.sandboxes))
	proc.Parallel(unjudged, func(i int) { found[i] = s.fsckSandbox(ctx, i) })
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for _, i := range unjudged {
		switch err := found[i]; {
		case err == nil:
			s.facts.Refused[s.fsckKey(i)] = ""
		case fault.Is[*fault.InvalidTreeError](err) || fault.Is[*fault.InvalidCommitError](err):
			s.facts.Refused[s.fsckKey(i)] = err.Error()
		default:
			s.sandboxes[i].err = err
		}
	}
	return nil
}

// fsckSandbox checks the new objects of a sandbox as a landing does.
func (s *forecast) fsckSandbox(ctx context.Context, i int) error {
	b, base := s.sandboxes[i], s.fsckBase(i)
	if b.head.Commit != base {
		if err := s.merger.FsckRange(ctx, base, b.head.Commit); err != nil {
			return err
		}
	}
	if b.tree == b.head.Tree {
		return nil
	}
	return s.merger.FsckTree(ctx, b.tree, b.head.Commit)
}

// isFaulty reports whether a sandbox could not be read, or contains objects that must not land.
func (s *forecast) isFaulty(i int) bool {
	if i == integrationSide {
		return false
	}
	why, _ := reuseFact(s.oldFacts.Refused, s.facts.Refused, s.fsckKey(i))
	return s.sandboxes[i].err != nil || why != ""
}

// addUnreadSandboxes adds to need the sandboxes that have to be read before they can be checked.
func (s *forecast) addUnreadSandboxes(indexes []int, need []*sandboxState) []*sandboxState {
	for _, i := range indexes {
		if !s.mergerHasTree(i) && !slices.Contains(need, s.sandboxes[i]) {
			need = append(need, s.sandboxes[i])
		}
	}
	return need
}
