package gitagency

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Radar is who would be in whose way.
type Radar struct {
	Sandboxes []RadarSandbox `json:"sandboxes"` // the oldest first
	Pairs     []RadarPair    `json:"pairs"`     // every two of those that could be looked at
}

// RadarSandbox says of a sandbox what would happen if all that is in it now were landed.
type RadarSandbox struct {
	ID    string     `json:"invocation_id"`
	Name  string     `json:"invocation_name"`
	State RadarState `json:"state"`
	Clean bool       `json:"clean"`           // also when there is nothing to land
	Paths []string   `json:"paths"`           // in conflict with the integration branch
	Error string     `json:"error,omitempty"` // why it could not be looked at, or is refused
}

// RadarPair says of two sandboxes what would happen if all that is in them now were merged: of two that would each land
// cleanly, which one cannot any more when the other has.
type RadarPair struct {
	A     string   `json:"a"`
	B     string   `json:"b"`
	Clean bool     `json:"clean"`
	Paths []string `json:"paths"` // in conflict with each other
}

// RadarState is what would become of a landing.
type RadarState string

// The states there are.
const (
	RadarClean     RadarState = "clean"
	RadarConflicts RadarState = "conflicts"
	RadarNothing   RadarState = "nothing" // to land
	RadarRefused   RadarState = "refused" // there is something in it that must not land
	RadarError     RadarState = "error"   // it could not be looked at
)

// Rivals is with how many others a sandbox conflicts.
func (r Radar) Rivals(id string) int {
	n := 0
	for _, p := range r.Pairs {
		if !p.Clean && (p.A == id || p.B == id) {
			n++
		}
	}
	return n
}

// Summary is a sandbox in a word: what is in the way of landing it, if anything is. It is the state, with how many paths
// are in conflict, or "rivals" with how many other sandboxes it conflicts with where nothing else is in its way.
func (r Radar) Summary(s RadarSandbox) string {
	switch rivals := r.Rivals(s.ID); {
	case s.State == RadarConflicts:
		return fmt.Sprintf("%s(%d)", s.State, len(s.Paths))
	case s.State == RadarClean && rivals > 0:
		return fmt.Sprintf("rivals(%d)", rivals)
	}
	return string(s.State)
}

// FillRadar has Radar say in each invocation that is live how it stands. What could not be looked at is told as a warning.
func (r *Repository) FillRadar(ctx context.Context, invocations []Invocation) error {
	found := map[string]Radar{}
	for i := range invocations {
		inv := &invocations[i]
		if !inv.Broken && ended(inv.entry.Record) || inv.WorktreeID == "" || inv.Verifies != "" {
			continue
		}
		radar, known := found[inv.WorktreeID]
		if !known {
			var err error
			radar, err = r.Radar(ctx, inv.WorktreeID)
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			if err != nil {
				r.warn("radar of worktree %s: %v", inv.WorktreeID, err)
			}
			found[inv.WorktreeID] = radar
		}
		inv.Radar = string(RadarError)
		for _, s := range radar.Sandboxes {
			if s.ID == inv.ID {
				inv.Radar = radar.Summary(s)
			}
		}
	}
	return nil
}

// Radar looks at every live sandbox of an integration worktree, found as Worktree does, but for those in which something
// is verified that is to land: whether what is in it now would
// land cleanly on the integration branch as that is now, and which two would conflict with each other. What is not
// committed counts, as a commit on top of HEAD would that had all of it: tracked, staged and untracked files, but not what
// git ignores nor what looks like a credential.
//
// Nothing changes anywhere, and commands may run meanwhile; what they change while it is looked at may be part of it or
// not. Neither settings nor attributes that an agent could have written have a say in it, and nothing runs that they name.
// A sandbox that cannot be looked at has an error and is in no pair; it does not keep the others from being looked at.
func (r *Repository) Radar(ctx context.Context, worktree string) (_ Radar, err error) {
	wt, err := r.Worktree(worktree)
	if err != nil {
		return Radar{}, err
	}
	invocations, err := r.Invocations(ListRequest{All: true})
	if err != nil {
		return Radar{}, err
	}
	s, err := r.newSweep(ctx, wt, invocations)
	if err != nil {
		return Radar{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.run(ctx); err != nil {
		return Radar{}, err
	}
	s.remember(invocations)
	return s.radar(), nil
}

// radar is what was found.
func (s *sweep) radar() Radar {
	found := Radar{Sandboxes: []RadarSandbox{}, Pairs: []RadarPair{}}
	for i, b := range s.boxes {
		box := RadarSandbox{ID: b.inv.ID, Name: b.inv.Name, State: RadarError, Paths: []string{}}
		if b.err != nil {
			box.Error = b.err.Error()
		} else {
			m := s.now.Merges[s.mergeKey(ontoIntegration(i))]
			box.Paths, box.Clean = m.paths(), m.clean()
			refused := s.now.Refused[s.soundKey(i)]
			switch {
			case refused != "":
				box.State, box.Clean, box.Error = RadarRefused, false, refused
			case !box.Clean:
				box.State = RadarConflicts
			case m.Nothing:
				box.State = RadarNothing
			default:
				box.State = RadarClean
			}
		}
		found.Sandboxes = append(found.Sandboxes, box)
	}
	for _, p := range s.pairs() {
		if !p.lands() {
			m := s.now.Merges[s.mergeKey(p)]
			found.Pairs = append(found.Pairs, RadarPair{A: s.boxes[p.a].inv.ID, B: s.boxes[p.b].inv.ID, Clean: m.clean(), Paths: m.paths()})
		}
	}
	return found
}

func (m mergeFact) paths() []string {
	paths := []string{}
	for _, p := range m.Conflicts {
		paths = append(paths, string(p))
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
