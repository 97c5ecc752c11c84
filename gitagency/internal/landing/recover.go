package landing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/update"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// HasInterruptedLanding reports whether a landing was interrupted. The caller holds the repository lock; otherwise the
// landing may still be running.
func HasInterruptedLanding(r *core.Repository) bool {
	_, there := store.FirstExisting(r.Store.LandingJournalPath(r.ID))
	return there
}

// Recover finishes an interrupted landing, unland or push merge if the branch had moved, and undoes it if it had
// not. If neither is possible the error is a *StuckLandingError, and nothing has changed.
func Recover(ctx context.Context, r *core.Repository, repo *git.Repo) error {
	if !HasInterruptedLanding(r) {
		return nil
	}
	note, err := r.Store.ReadLandingJournal(r.ID)
	if err != nil || note == nil {
		return err
	}
	var a update.Update
	if err := json.Unmarshal(note.Update, &a); err != nil {
		return &fault.StuckLandingError{ID: note.InvocationID, Path: r.Store.LandingJournalPath(r.ID), Err: err}
	}
	done, err := update.Recover(ctx, repo, a)
	if err != nil {
		return &fault.StuckLandingError{ID: note.InvocationID, Path: r.Store.LandingJournalPath(r.ID), Err: err}
	}
	if note.Verb == verbPush { // a merge before a push has no record
		if done {
			r.Warn("'land --push' was interrupted; the merge is done: %s is at %s, and not pushed", core.ShortBranch(a.Branch), a.New)
		}
		return r.Store.RemoveLandingJournal(r.ID)
	}
	if note.Verb == verbFinish && done { // the worktree is still there
		r.Warn("'worktree finish %s' was interrupted; the merge is done: %s is at %s; finish it again to archive the worktree", note.InvocationID, core.ShortBranch(a.Branch), a.New)
		return r.Store.RemoveLandingJournal(r.ID)
	}
	if !done {
		command := note.Verb
		if command == verbFinish {
			command = "worktree finish"
		}
		r.Warn("'%s %s' was interrupted; all of it was undone", command, note.InvocationID)
		return r.Store.RemoveLandingJournal(r.ID)
	}
	r.Warn("'%s %s' was interrupted; it is done: %s is at %s", note.Verb, note.InvocationID, core.ShortBranch(a.Branch), a.New)
	entry := r.Store.Invocation(r.ID, note.InvocationID, nil)
	if entry.Defect != store.NoDefect && entry.Defect != store.MissingTree {
		return errors.Join(r.Store.RemoveLandingJournal(r.ID), fmt.Errorf("%s has landed as %s, but this cannot be recorded: %w", entry.ID, a.New, core.InvocationFromEntry(entry, nil).Err()))
	}
	if note.Verb == verbUnland {
		if entry.Record.UnlandedCommit != a.New {
			if err := recordUnlanding(r, UnlandResult{Invocation: entry.ID, Commit: a.New, Before: a.Old, Branch: core.ShortBranch(a.Branch), Landed: note.Tip}); err != nil {
				return err
			}
		}
		return r.Store.RemoveLandingJournal(r.ID)
	}
	if entry.Record.Landing != store.Landed {
		if err := recordLanding(r, Result{
			Invocation: entry.ID, Commit: a.New, Before: a.Old, Branch: core.ShortBranch(a.Branch), Strategy: note.Strategy, Tip: note.Tip,
		}, time.Time{}); err != nil {
			return err
		}
	}
	if err := r.Store.RemoveLandingJournal(r.ID); err != nil {
		return err
	}
	return discard.RemoveRemains(ctx, r, repo, note.InvocationID)
}
