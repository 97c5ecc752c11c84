package gitagency

import (
	"context"
	"slices"
)

// fsckKey returns the cache key for the check of a sandbox: its commits since fsckBase, and its uncommitted work.
func (s *sweep) soundKey(i int) string {
	b := s.boxes[i]
	return factKey("sound", s.landsOn(i), b.head.Commit, b.tree)
}

// fsckBase returns the merge base of a sandbox and the integration branch. Without a single base it is the branch's commit,
// whose objects are known to be valid.
func (s *sweep) landsOn(i int) string {
	if base := s.base(ontoIntegration(i)); base != "" {
		return base
	}
	return s.tip.Commit
}

// unchecked lists the sandboxes without a cached check result.
func (s *sweep) unjudged() []int {
	var left []int
	for i, b := range s.boxes {
		if b.err != nil {
			continue
		}
		if _, known := recalled(s.was.Refused, s.now.Refused, s.soundKey(i)); !known {
			left = append(left, i)
		}
	}
	return left
}

// fsckSandboxes checks sandboxes for objects that a landing would refuse, whatever they conflict with.
func (s *sweep) judge(ctx context.Context, unjudged []int) error {
	found := make([]error, len(s.boxes))
	parallel(unjudged, func(i int) { found[i] = s.sound(ctx, i) })
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for _, i := range unjudged {
		switch err := found[i]; {
		case err == nil:
			s.now.Refused[s.soundKey(i)] = ""
		case is[*UnsoundError](err) || is[*UnsoundCommitError](err):
			s.now.Refused[s.soundKey(i)] = err.Error()
		default:
			s.boxes[i].err = err
		}
	}
	return nil
}

// fsckSandbox checks the new objects of a sandbox as a landing does.
func (s *sweep) sound(ctx context.Context, i int) error {
	b, base := s.boxes[i], s.landsOn(i)
	if b.head.Commit != base {
		if err := s.merger.SoundRange(ctx, base, b.head.Commit); err != nil {
			return err
		}
	}
	if b.tree == b.head.Tree {
		return nil
	}
	return s.merger.Sound(ctx, b.tree, b.head.Commit)
}

// isFaulty reports whether a sandbox could not be read, or contains objects that must not land.
func (s *sweep) faulty(i int) bool {
	if i == integrationSide {
		return false
	}
	why, _ := recalled(s.was.Refused, s.now.Refused, s.soundKey(i))
	return s.boxes[i].err != nil || why != ""
}

// unreadSandboxes adds to need the sandboxes that have to be read before they can be checked.
func (s *sweep) unreadIn(indexes []int, need []*box) []*box {
	for _, i := range indexes {
		if !s.has(i) && !slices.Contains(need, s.boxes[i]) {
			need = append(need, s.boxes[i])
		}
	}
	return need
}
