package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/radar"
)

// RadarResult is the result of Radar: which sandboxes conflict with the integration branch and with each other.
type RadarResult = radar.Result

// RadarSandbox says what would happen if the whole content of a sandbox were landed now.
type RadarSandbox = radar.Sandbox

// RadarPair says what would happen if the contents of two sandboxes were merged now: of two that would each land cleanly,
// whether the second still could after the first.
type RadarPair = radar.Pair

// RadarState is the predicted result of a landing.
type RadarState = radar.State

// Predicted results.
const (
	RadarClean     = radar.RadarClean
	RadarConflicts = radar.RadarConflicts
	RadarNothing   = radar.RadarNothing // nothing to land
	RadarRefused   = radar.RadarRefused // it contains objects that must not land
	RadarError     = radar.RadarError   // it could not be read
)

// FillRadar sets the Radar field of every live invocation to its summary. Worktrees that fail are reported as warnings.
func (r *Repository) FillRadar(ctx context.Context, invocations []Invocation) error {
	return radar.Fill(ctx, r.core, invocations)
}

// Radar predicts, for every live sandbox of an integration worktree, whether its current content would land cleanly on the
// current integration branch, and which two sandboxes would conflict with each other. It skips temporary sandboxes that
// verify a landing. The worktree is found as by Worktree. Uncommitted work counts as if it were committed on top of HEAD:
// tracked, staged and untracked files, but neither ignored files nor files that look like credentials.
//
// Radar changes nothing, and commands may run meanwhile; changes made during the scan may be included or not. It ignores
// configuration and attributes that an agent could have written, and runs nothing that they name. A sandbox that cannot be
// read has an Error and is in no pair; the others are not affected.
func (r *Repository) Radar(ctx context.Context, worktree string) (_ RadarResult, err error) {
	return radar.Compute(ctx, r.core, worktree)
}
