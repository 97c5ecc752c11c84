package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
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
	Kind         string `json:"kind"` // invocation, worktree, trash (refs without a record), leftover (of a killed process) or layer
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

	entry        store.Entry[store.InvocationMeta] // record of an invocation
	worktree     core.Worktree
	keptCommit   string // commit of the trash ref; empty if there is none
	discardFirst bool   // an abandoned verification sandbox: discard it
	hasRemains   bool   // parts of the sandbox still exist
	leftoverRef  string // missing ref of which a lock file or a reflog is left
}

// PrunedSnapshot is a snapshot of a sandbox with its ref, which may have been deleted.
type PrunedSnapshot struct {
	Ref    string `json:"ref"`
	Commit string `json:"commit"`
}

// Actions of Prune.
const (
	PruneRemove = "remove"
	PruneClean  = "clean"
	PruneKeep   = "keep"
)

// Prune removes items that have provably ended, and gives a reason for everything that it keeps. It removes invocations
// that were landed or discarded before the cutoff, with their trash and snapshot refs; remaining parts of ended sandboxes;
// trash and snapshot refs without a record; and leftovers of killed processes. It plans everything before it changes
// anything, then carries out the plan, or with DryRun only returns it.
//
// After a failure Prune goes on with the rest, and returns the error together with all results. The next Prune tries the
// failed items again.
func Prune(ctx context.Context, r *core.Repository, req PruneRequest) ([]PruneResult, error) {
	expiry, err := resolveCutoff(ctx, r, req.Expire)
	if err == nil {
		_, err = r.Settings.TrashLimit() // the rest of a sandbox may become an archive
	}
	if err != nil {
		return nil, err
	}
	if req.OnExpiry != nil {
		req.OnExpiry(expiry.before)
	}
	plan := prunePlan{r: r, repo: r.Git, pruneCutoff: expiry}
	makePlan := plan.planRefsOnly // does not even create the lock in a repository that was never used
	if _, used := store.FirstExisting(r.LockDir(), r.Store.RepoDir(r.ID)); used {
		timeout, err := r.Settings.LockTimeout()
		if err != nil {
			return nil, err
		}
		release, running, err := discard.BlockCleanup(ctx, r, timeout) // before the repository lock, which a clean-up may need
		if err != nil {
			return nil, err
		}
		defer release()
		repo, unlock, err := r.LockAndRecover(ctx)
		if err != nil {
			return nil, err
		}
		defer unlock()
		plan.cleanupRunning = running
		plan.repo, makePlan = repo, plan.planAll
	}
	if err := makePlan(ctx); err != nil {
		return nil, fmt.Errorf("prune: %w", err)
	}

	results := []PruneResult{}
	for _, t := range plan.results {
		t.DryRun, t.Snapshots = req.DryRun, append([]PrunedSnapshot{}, t.Snapshots...) // an empty list, not null
		if !req.DryRun {
			if err := context.Cause(ctx); err != nil {
				return results, errors.Join(append(plan.errs, err)...)
			}
			if err := pruneOne(ctx, r, plan.repo, &t); err != nil {
				t.Action, t.Reason, t.TrashCommit = PruneKeep, err.Error(), ""
				plan.errs = append(plan.errs, err)
			}
		}
		results = append(results, t)
	}
	if !req.DryRun {
		if err := pruneLayers(ctx, r, expiry, results); err != nil {
			plan.errs = append(plan.errs, err)
		}
		if err := pruneImages(ctx, r, results); err != nil {
			plan.errs = append(plan.errs, err)
		}
	}
	return results, errors.Join(plan.errs...)
}

// pruneCutoff is the time before which an item must have ended to be pruned.
type pruneCutoff struct {
	before    time.Time // zero: nothing expires
	expireAll bool      // the cutoff is not before now, so everything that has ended is older
}

// resolveCutoff parses the cutoff; empty text means agency.pruneAfter.
func resolveCutoff(ctx context.Context, r *core.Repository, text string) (pruneCutoff, error) {
	now := time.Now() // git parses dates relative to the real clock
	at, err := r.Settings.PruneExpiry(ctx, text)
	return pruneCutoff{before: at, expireAll: !at.Before(now)}, err
}

// isExpired reports whether an item that ended at a time, nil if unknown, may be pruned.
func (e pruneCutoff) isExpired(at *time.Time) bool {
	return e.expireAll || at != nil && !e.before.IsZero() && at.Before(e.before)
}

// pruneOne carries out the plan for one item.
func pruneOne(ctx context.Context, r *core.Repository, repo *git.Repo, t *PruneResult) error {
	switch {
	case t.Action == PruneKeep || t.Kind == kindLayer || t.Kind == kindImage: // see pruneLayers and pruneImages
		return nil
	case t.Kind == "invocation":
		return pruneInvocation(ctx, r, repo, t)
	case t.Kind == "worktree":
		if err := r.RemoveArchivedTree(ctx, repo, t.worktree, time.Time{}); err != nil {
			return &fault.CleanupError{Kind: t.Kind, ID: t.ID, Done: store.Archived, Err: err}
		}
		return nil
	}
	steps := []core.Step{{Name: "leftover", Do: func() error { return durable.RemoveTree(t.Path) }}}
	switch {
	case t.Kind == "trash":
		steps = deleteRefSteps(ctx, r, repo, t)
	case t.leftoverRef != "":
		steps = []core.Step{{Name: "scrap", Do: func() error { return repo.RemoveRefLeftovers(ctx, t.leftoverRef) }}}
	}
	if err := r.RunSteps(ctx, "prune", steps); err != nil {
		return fmt.Errorf("prune %s: %w", cmp.Or(t.TrashRef, t.Path, t.ID), err)
	}
	return nil
}

// deleteRefSteps returns the steps that delete the refs of an item if they still have the planned values.
func deleteRefSteps(ctx context.Context, r *core.Repository, repo *git.Repo, t *PruneResult) []core.Step {
	snapshots := t.refs()
	delete(snapshots, core.TrashRef(t.ID))
	return r.DeleteTrashSteps(ctx, repo, t.ID, snapshots, t.keptCommit)
}

// pruneInvocation removes the rest of the sandbox as a discard does, then the refs, then the record, so that the record is
// there to continue from after any failure. If the sandbox holds changes that the plan did not see, they go to the trash,
// and the refs and the record stay.
func pruneInvocation(ctx context.Context, r *core.Repository, repo *git.Repo, t *PruneResult) error {
	if t.discardFirst {
		_, err := discard.EndAbandoned(ctx, r, repo, t.entry, core.TrashOptions{})
		return err
	}
	if t.hasRemains {
		found, err := discard.End(ctx, r, repo, t.entry, core.TrashOptions{})
		if err != nil {
			return pruneError(r, t, err)
		}
		// A discard that adds to the archive alone renews the date of the record.
		renewed := !core.TimeOrZero(r.Store.Invocation(r.ID, t.ID, nil).Record.FinishedAt).Equal(core.TimeOrZero(t.entry.Record.FinishedAt))
		if found.Commit != t.keptCommit || renewed {
			t.Action, t.Reason, t.TrashRef, t.TrashCommit = PruneClean, reasonChangedAfterEnd, found.TrashRef, ""
			t.TrashArchive, t.ArchiveSize = found.TrashArchive, found.ArchiveSize
		}
	}
	if t.Action != PruneRemove {
		return nil
	}
	if _, there := store.FirstExisting(r.Store.SandboxDir(r.ID, t.ID)); there { // created after the plan was made
		t.Action, t.Reason, t.TrashCommit = PruneKeep, reasonChangedAfterEnd, ""
		return nil
	}
	err := r.RunSteps(ctx, "prune", append(deleteRefSteps(ctx, r, repo, t),
		core.Step{Name: "record", Do: func() error { return r.Store.RemoveInvocation(r.ID, t.ID) }}))
	return pruneError(r, t, err)
}

// pruneError wraps the error of an invocation that could not be pruned with its state.
func pruneError(r *core.Repository, t *PruneResult, err error) error {
	if err == nil || fault.Is[*fault.CleanupError](err) {
		return err
	}
	return &fault.CleanupError{Kind: t.Kind, ID: t.ID, Done: t.entry.Record.Landing, Err: err}
}
