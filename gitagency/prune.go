package gitagency

import (
	"context"
	"errors"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/doctor"
)

// PruneRequest says what Prune may remove.
type PruneRequest struct {
	Expire string // cutoff in git's date format: items that ended before it expire; empty: agency.pruneAfter, else two weeks ago
	DryRun bool   // return the plan without carrying it out

	// OnExpiry receives the parsed cutoff before anything is done, because git accepts almost any text as a date. The zero
	// time means that nothing expires.
	OnExpiry func(before time.Time)
}

// PruneResult is one item that Prune considered, and the action taken.
type PruneResult struct {
	Kind         string `json:"kind"` // invocation, worktree, trash (refs without a record), leftover (of a killed process), layer (of overlays) or image (of --software)
	ID           string `json:"id"`
	Action       string `json:"action"`        // PruneRemove; PruneClean if only the rest of its sandbox goes; or PruneKeep
	Reason       string `json:"reason"`        // reason for the action, part of a sentence
	BrokenReason string `json:"broken_reason"` // set if it is kept because its record is broken
	TrashRef     string `json:"trash_ref"`     // ref that keeps its work; deleted with the item
	TrashCommit  string `json:"trash_commit"`  // commit of a deleted trash ref: it can be restored until git gc
	Path         string `json:"path"`          // directory of the record, or path of the leftover
	DryRun       bool   `json:"dry_run"`       // nothing was done; Action is the plan

	Snapshots []PrunedSnapshot `json:"snapshots"` // snapshots of its sandbox in order; deleted with the item

	TrashArchive string `json:"trash_archive"` // archive of what no commit can hold; deleted with the item; empty if there is none
	ArchiveSize  int64  `json:"archive_size"`  // its size in bytes

	Name string `json:"name"` // name of the invocation or worktree; empty if it has none
}

// Actions of Prune.
const (
	PruneRemove = "remove"
	PruneClean  = "clean"
	PruneKeep   = "keep"
)

func newPruneResult(r doctor.PruneResult) PruneResult {
	return PruneResult{
		Kind: r.Kind, ID: r.ID, Name: r.Name, Action: r.Action, Reason: r.Reason, BrokenReason: r.BrokenReason, TrashRef: r.TrashRef,
		TrashCommit: r.TrashCommit, Path: r.Path, DryRun: r.DryRun, Snapshots: convertAll(r.Snapshots, newPrunedSnapshot),
		TrashArchive: r.TrashArchive, ArchiveSize: r.ArchiveSize,
	}
}

// PrunedSnapshot is a snapshot of a sandbox with its ref, which may have been deleted.
type PrunedSnapshot struct {
	Ref    string `json:"ref"`
	Commit string `json:"commit"`
}

func newPrunedSnapshot(s doctor.PrunedSnapshot) PrunedSnapshot { return PrunedSnapshot(s) }

// Prune removes items that have provably ended, and gives a reason for everything that it keeps. It removes invocations
// that were landed or discarded before the cutoff, with their trash and snapshot refs; remaining parts of ended sandboxes;
// trash and snapshot refs without a record; and leftovers of killed processes. It plans everything before it changes
// anything, then carries out the plan, or with DryRun only returns it.
//
// After a failure Prune goes on with the rest, and returns the error together with all results. The next Prune tries the
// failed items again.
func (r *Repository) Prune(ctx context.Context, req PruneRequest) ([]PruneResult, error) {
	var forgetErr error
	if !req.DryRun { // before the records go
		forgetErr = errors.Join(r.platforms.ForgetEnded(ctx), r.platforms.ForgetProbes(ctx))
	}
	results, err := doctor.Prune(ctx, r.core, doctor.PruneRequest(req))
	err = errors.Join(err, forgetErr)
	return convertAll(results, newPruneResult), publicError(err)
}
