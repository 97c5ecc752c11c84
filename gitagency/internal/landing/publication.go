package landing

import (
	"context"
	"encoding/json"
	"os"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/update"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Operations that move the integration branch.
const (
	verbLand   = "land"
	verbUnland = "unland"
	verbPush   = "push"   // merge of commits that others pushed
	verbFinish = "finish" // merge of an integration branch into its parent branch
)

// publication describes a move of the integration branch together with the worktree that has it checked out. Landing,
// unlanding and merging before a push share it.
type publication struct {
	merger       *merge.Merger // has created the new commit
	branchUpdate update.Update
	journal      store.LandingJournal // journal for recovery after a kill; runPublication fills in the rest
	dryRun       bool                 // only check whether it is possible
	writeRecord  func() error         // writes the record of the invocation; nil if there is none
	followUp     []core.Step          // steps after the branch has moved
}

// runPublication is the transaction that moves the branch. Until the refs have moved, every failure or cancellation is
// undone, last step first. From then on it only goes forward; each step can be repeated, so that Recover can finish
// it from the journal.
func runPublication(ctx context.Context, r *core.Repository, p publication) (done bool, err error) {
	// 1. Check everything that could prevent the update.
	moving, err := update.BeginMerged(ctx, p.merger, p.branchUpdate)
	if err != nil {
		return false, err
	}
	defer func() {
		if closeErr := moving.Close(); closeErr != nil {
			r.Warn("%s: %v", p.branchUpdate.Worktree, closeErr)
		}
	}()
	if p.dryRun {
		return false, nil
	}
	if err := moveBranch(ctx, r, p.merger, moving, completeJournal(r, p.journal, p.branchUpdate)); err != nil {
		return false, err
	}
	// 8. Finish. Each of these steps may have been done before.
	onward := context.WithoutCancel(ctx)
	steps := []core.Step{{Name: "index", Do: func() error { return moving.Publish(onward) }}}
	if p.writeRecord != nil {
		steps = append(steps, core.Step{Name: "record", Do: p.writeRecord})
	}
	steps = append(steps, core.Step{Name: "clear", Do: moving.WaitCleanup}, core.Step{Name: "done", Do: func() error { return r.Store.RemoveLandingJournal(r.ID) }})
	return true, r.RunSteps(onward, p.journal.Verb, append(steps, p.followUp...))
}

// completeJournal adds to a journal the data that recovery needs.
func completeJournal(r *core.Repository, note store.LandingJournal, a update.Update) store.LandingJournal {
	data, err := json.Marshal(a)
	if err != nil {
		panic(err) // cannot happen: it contains only strings, booleans and lists
	}
	note.Update, note.PID, note.StartedAt = data, os.Getpid(), r.Now()
	return note
}

// moveBranch runs the steps of runPublication up to the commit point, the move of the refs.
func moveBranch(ctx context.Context, r *core.Repository, merger *merge.Merger, moving *update.Transaction, note store.LandingJournal) (err error) {
	tx := r.BeginTx(note.Verb)
	defer func() {
		if err != nil {
			core.RollbackTx(ctx, tx)
		}
	}()
	var stuck error // error that prevented the undo
	moving.StartUpdateRef(ctx)
	// 2. Write the new objects to the repository.
	if err := tx.Step(ctx, "objects", func() error { return merger.Persist(ctx) }); err != nil {
		return err
	}
	// 3. Write the journal, in case this process is killed.
	if err := tx.Step(ctx, "note", func() error {
		tx.Undo("note", func(context.Context) error {
			if stuck != nil {
				return nil // keep the journal, so that the next command tries again
			}
			return r.Store.RemoveLandingJournal(r.ID)
		})
		return r.Store.WriteLandingJournal(r.ID, note)
	}); err != nil {
		return err
	}
	// 4. Lock the index of the checkout against other git processes.
	if err := tx.Step(ctx, "lock", func() error {
		tx.Undo("lock", func(ctx context.Context) error {
			err := moving.Undo(ctx)
			if !onlyForeignWrites(err) { // only the user can resolve these
				stuck = err
			}
			return err
		})
		return moving.Lock(ctx)
	}); err != nil {
		return err
	}
	for _, s := range []core.Step{
		{Name: "prepare", Do: func() error { return moving.Prepare(ctx) }}, // 5. Lock the refs at their old values.
		{Name: "files", Do: func() error { return moving.MoveFiles(ctx) }}, // 6. Replace the files of the checkout; write the new index beside the old.
	} {
		if err := tx.Step(ctx, s.Name, s.Do); err != nil {
			return err
		}
	}
	// 7. The commit point. Later errors neither undo nor stop the update.
	landed := false
	if err := tx.Step(ctx, "commit", func() error {
		if err := context.Cause(ctx); err != nil {
			return err // the last chance to cancel
		}
		err := moving.Commit(ctx)
		landed = err == nil
		return err
	}); err != nil && !landed {
		return err
	}
	tx.Commit()
	if b := moving.StaleCheckout(); b != nil {
		r.Warn("%v; to update its files: git -C %s read-tree -m -u %s %s", b, quote.Shell(b.Worktree), b.Old, b.New)
	}
	return nil
}

// onlyForeignWrites reports whether an undo failed for no other reason than that others have written to some paths.
func onlyForeignWrites(err error) bool {
	switch e := err.(type) {
	case nil, *update.ConcurrentChangeError:
		return true
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(part error) bool { return !onlyForeignWrites(part) })
	}
	return false
}
