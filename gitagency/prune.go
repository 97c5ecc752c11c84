package gitagency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// PruneRequest says what may go.
type PruneRequest struct {
	Expire string // what ended before that moment; "" is agency.pruneAfter, else two weeks ago
	DryRun bool   // only say what would be done

	// Begin hears, before anything is done, which moment was meant: git reads almost anything as one. The
	// zero time means that nothing expires.
	Begin func(before time.Time)
}

// Pruned is one thing that prune looked at, and what it did with it.
type Pruned struct {
	Kind         string `json:"kind"` // invocation, worktree, trash (a ref with nothing else left) or leftover (of a killed process)
	ID           string `json:"id"`
	Action       string `json:"action"`        // remove; clean, when only what was left of its sandbox goes; or keep
	Reason       string `json:"reason"`        // part of a sentence, for people
	BrokenReason string `json:"broken_reason"` // of what is kept because it is broken
	TrashRef     string `json:"trash_ref"`     // what keeps its work; it goes when the thing is removed
	TrashCommit  string `json:"trash_commit"`  // where a ref that goes was: until git collects it, it can be had back
	Path         string `json:"path"`          // the directory of the record, or the leftover
	DryRun       bool   `json:"dry_run"`       // nothing was done, this is what would be

	Snapshots []PrunedSnapshot `json:"snapshots"` // of its sandbox, in their order; they go when the thing is removed

	entry     store.Entry[store.InvocationMeta] // of an invocation
	worktree  Worktree
	kept      string // what the trash ref keeps
	abandoned bool   // it is discarded first
	left      bool   // there is something left of the sandbox
	scrap     string // a ref of which only remains are left
}

// PrunedSnapshot is a snapshot of a sandbox, and the ref that keeps it, or kept it.
type PrunedSnapshot struct {
	Ref    string `json:"ref"`
	Commit string `json:"commit"`
}

// What prune does with a thing.
const (
	PruneRemove = "remove"
	PruneClean  = "clean"
	PruneKeep   = "keep"
)

// Prune removes what is provably finished, and says why it keeps what it keeps: invocations that were
// landed or discarded long enough ago, with the refs that keep their work and their snapshots; what is left of sandboxes that
// ended; refs that keep the work of what is forgotten; and what killed processes left behind. All is
// planned before anything is touched, and the plan is what is carried out, or with DryRun only returned.
//
// What fails is returned together with all that was done. Prune goes on with the rest, and the next one
// with what failed.
func (r *Repository) Prune(ctx context.Context, req PruneRequest) ([]Pruned, error) {
	expiry, err := r.expiring(ctx, req.Expire)
	if err != nil {
		return nil, err
	}
	if req.Begin != nil {
		req.Begin(expiry.before)
	}
	plan := prunePlan{r: r, repo: r.git, expiring: expiry}
	look := plan.untouched // not even a lock is made where nobody of ours has ever been
	if _, used := store.Taken(r.lockDir(), r.store.RepoDir(r.ID)); used {
		repo, unlock, err := r.lock(ctx)
		if err != nil {
			return nil, err
		}
		defer unlock()
		plan.repo, look = repo, plan.everything
	}
	if err := look(ctx); err != nil {
		return nil, fmt.Errorf("prune: %w", err)
	}

	things := []Pruned{}
	for _, t := range plan.things {
		t.DryRun, t.Snapshots = req.DryRun, append([]PrunedSnapshot{}, t.Snapshots...) // none is an empty list
		if !req.DryRun {
			if err := context.Cause(ctx); err != nil {
				return things, errors.Join(append(plan.failed, err)...)
			}
			if err := r.prune(ctx, plan.repo, &t); err != nil {
				t.Action, t.Reason, t.TrashCommit = PruneKeep, err.Error(), ""
				plan.failed = append(plan.failed, err)
			}
		}
		things = append(things, t)
	}
	return things, errors.Join(plan.failed...)
}

// expiring is the moment before which what ended may go.
type expiring struct {
	before time.Time // zero: nothing may
	all    bool      // it is no earlier than now, so all that has ended ended before it
}

func (r *Repository) expiring(ctx context.Context, text string) (expiring, error) {
	now := time.Now() // git's words for moments are of the real clock
	at, err := r.expiry(ctx, text)
	return expiring{before: at, all: !at.Before(now)}, err
}

// passed reports whether something that ended then, if that is known, may go.
func (e expiring) passed(at *time.Time) bool {
	return e.all || at != nil && !e.before.IsZero() && at.Before(e.before)
}

// prune carries out what the plan says of one thing.
func (r *Repository) prune(ctx context.Context, repo *git.Repo, t *Pruned) error {
	switch {
	case t.Action == PruneKeep:
		return nil
	case t.Kind == "invocation":
		return r.pruneInvocation(ctx, repo, t)
	case t.Kind == "worktree":
		if err := r.removeArchived(ctx, repo, t.worktree, time.Time{}); err != nil {
			return &CleanupError{Kind: t.Kind, ID: t.ID, Done: store.Archived, Err: err}
		}
		return nil
	}
	steps := []step{{"leftover", func() error { return durable.RemoveTree(t.Path) }}}
	switch {
	case t.Kind == "trash":
		steps = r.forgetting(ctx, repo, t)
	case t.scrap != "":
		steps = []step{{"scrap", func() error { return repo.SweepRef(ctx, t.scrap) }}}
	}
	if err := r.forward(ctx, "prune", steps); err != nil {
		return fmt.Errorf("prune %s: %w", cmp.Or(t.TrashRef, t.Path, t.ID), err)
	}
	return nil
}

// forgetting are the steps that take away the refs of a thing, each at what the plan saw.
func (r *Repository) forgetting(ctx context.Context, repo *git.Repo, t *Pruned) []step {
	return []step{
		{"snapshots", func() error {
			refs := t.refs()
			delete(refs, trashRef(t.ID))
			return repo.RemoveRefs(ctx, snapshotRefs(t.ID), refs)
		}},
		{"trash", func() error {
			if t.kept == "" {
				return repo.SweepRef(ctx, trashRef(t.ID)) // of an earlier attempt
			}
			return repo.RemoveRef(ctx, trashRef(t.ID), t.kept)
		}},
	}
}

// pruneInvocation takes away what is left of the sandbox, as a discard would, then the refs, then the
// record: whatever stops it, there is a record to go on from. What is found in the sandbox against the
// plan is kept, and all that keeps it.
func (r *Repository) pruneInvocation(ctx context.Context, repo *git.Repo, t *Pruned) error {
	if t.abandoned {
		_, err := r.endAbandoned(ctx, repo, t.entry)
		return err
	}
	if t.left {
		found, err := r.end(ctx, repo, t.entry)
		if err != nil {
			return r.unpruned(t, err)
		}
		if found.Commit != t.kept {
			t.Action, t.Reason, t.TrashRef, t.TrashCommit = PruneClean, workedIn, found.TrashRef, ""
		}
	}
	if t.Action != PruneRemove {
		return nil
	}
	if _, there := store.Taken(r.store.SandboxDir(r.ID, t.ID)); there { // since the plan was made
		t.Action, t.Reason, t.TrashCommit = PruneKeep, workedIn, ""
		return nil
	}
	err := r.forward(ctx, "prune", append(r.forgetting(ctx, repo, t),
		step{"record", func() error { return r.store.RemoveInvocation(r.ID, t.ID) }}))
	return r.unpruned(t, err)
}

// unpruned says what stands of an invocation that could not be pruned.
func (r *Repository) unpruned(t *Pruned, err error) error {
	if err == nil || is[*CleanupError](err) {
		return err
	}
	return &CleanupError{Kind: t.Kind, ID: t.ID, Done: t.entry.Record.Landing, Err: err}
}
