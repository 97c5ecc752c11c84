package gitagency

import (
	"context"
	"slices"
)

// soundKey names what may be in a sandbox that must not land: commits on top of what it has in common with the integration
// branch, and what is in no commit.
func (s *sweep) soundKey(i int) string {
	b := s.boxes[i]
	return factKey("sound", s.landsOn(i), b.head.Commit, b.tree)
}

// landsOn is the commit that a sandbox and the integration branch have in common. Where that is not one, all that the branch
// has is known to be sound.
func (s *sweep) landsOn(i int) string {
	if base := s.base(ontoIntegration(i)); base != "" {
		return base
	}
	return s.tip.Commit
}

// unjudged lists the sandboxes of which it is not known whether they hold what must not land.
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

// judge finds out what must not land, whatever it conflicts with: a landing would refuse it.
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

// sound looks at what is new in a sandbox as a landing does.
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

// faulty reports whether a sandbox could not be looked at, or holds what must not land.
func (s *sweep) faulty(i int) bool {
	if i == integrationSide {
		return false
	}
	why, _ := recalled(s.was.Refused, s.now.Refused, s.soundKey(i))
	return s.boxes[i].err != nil || why != ""
}

// unreadIn lists those of some sandboxes that have to be read to be judged.
func (s *sweep) unreadIn(boxes []int, need []*box) []*box {
	for _, i := range boxes {
		if !s.has(i) && !slices.Contains(need, s.boxes[i]) {
			need = append(need, s.boxes[i])
		}
	}
	return need
}
