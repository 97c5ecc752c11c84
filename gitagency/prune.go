package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/doctor"
)

// PruneRequest says what Prune may remove.
type PruneRequest = doctor.PruneRequest

// PruneResult is one item that Prune considered, and the action taken.
type PruneResult = doctor.PruneResult

// PrunedSnapshot is a snapshot of a sandbox with its ref, which may have been deleted.
type PrunedSnapshot = doctor.PrunedSnapshot

// Actions of Prune.
const (
	PruneRemove = doctor.PruneRemove
	PruneClean  = doctor.PruneClean
	PruneKeep   = doctor.PruneKeep
)

// Prune removes items that have provably ended, and gives a reason for everything that it keeps. It removes invocations
// that were landed or discarded before the cutoff, with their trash and snapshot refs; remaining parts of ended sandboxes;
// trash and snapshot refs without a record; and leftovers of killed processes. It plans everything before it changes
// anything, then carries out the plan, or with DryRun only returns it.
//
// After a failure Prune goes on with the rest, and returns the error together with all results. The next Prune tries the
// failed items again.
func (r *Repository) Prune(ctx context.Context, req PruneRequest) ([]PruneResult, error) {
	return doctor.Prune(ctx, r.core, req)
}
