package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/radar"
)

// RadarResult is the result of Radar: which sandboxes conflict with the integration branch and with each other.
type RadarResult struct {
	Sandboxes []RadarSandbox `json:"sandboxes"` // oldest first
	Pairs     []RadarPair    `json:"pairs"`     // every two sandboxes that could be read
}

func newRadarResult(r radar.Result) RadarResult {
	return RadarResult{Sandboxes: convertAll(r.Sandboxes, newRadarSandbox), Pairs: convertAll(r.Pairs, newRadarPair)}
}

// RadarSandbox says what would happen if the whole content of a sandbox were landed now.
type RadarSandbox struct {
	ID    string     `json:"invocation_id"`
	Name  string     `json:"invocation_name"`
	State RadarState `json:"state"`
	Clean bool       `json:"clean"`           // no conflicts; also if there is nothing to land
	Paths []string   `json:"paths"`           // paths in conflict with the integration branch
	Error string     `json:"error,omitempty"` // why it could not be read, or is refused

	Task          string `json:"-"` // first line of its task
	BranchMissing bool   `json:"-"` // the branch that it lands on does not exist any more
}

func newRadarSandbox(s radar.Sandbox) RadarSandbox {
	return RadarSandbox{ID: s.ID, Name: s.Name, State: RadarState(s.State), Clean: s.Clean, Paths: s.Paths, Error: s.Error, Task: s.Task, BranchMissing: s.BranchMissing}
}

// RadarState is the predicted result of a landing.
type RadarState string

// Predicted results.
const (
	RadarClean     RadarState = "clean"
	RadarConflicts RadarState = "conflicts"
	RadarNothing   RadarState = "nothing" // nothing to land
	RadarRefused   RadarState = "refused" // it contains objects or files that must not land
	RadarError     RadarState = "error"   // it could not be read
)

// RadarPair says what would happen if the contents of two sandboxes were merged now: of two that would each land cleanly,
// whether the second still could after the first.
type RadarPair struct {
	A     string   `json:"a"`
	B     string   `json:"b"`
	Clean bool     `json:"clean"`
	Paths []string `json:"paths"` // paths in conflict with each other
}

func newRadarPair(p radar.Pair) RadarPair { return RadarPair(p) }

// Radar predicts, for every live sandbox of an integration worktree, whether its current content would land cleanly on the
// current integration branch, and which two sandboxes would conflict with each other. It skips temporary sandboxes that
// verify a landing. The worktree is found as by Worktree. Uncommitted work counts as if it were committed on top of HEAD:
// tracked, staged and untracked files, but neither ignored files nor files that look like credentials.
//
// Radar changes nothing, and commands may run meanwhile; changes made during the scan may be included or not. It ignores
// configuration and attributes that an agent could have written, and runs nothing that they name. A sandbox that cannot be
// read has an Error and is in no pair; the others are not affected.
func (r *Repository) Radar(ctx context.Context, worktree string) (RadarResult, error) {
	result, err := radar.Compute(ctx, r.core, worktree)
	return newRadarResult(result), publicError(err)
}
