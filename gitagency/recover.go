package gitagency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/update"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// hasInterruptedLanding reports whether a landing was interrupted. The caller holds the repository lock; otherwise the
// landing may still be running.
func (r *Repository) hasInterruptedLanding() bool {
	_, there := store.FirstExisting(r.store.LandingJournalPath(r.ID))
	return there
}

// recoverLanding finishes an interrupted landing, unland or push merge if the branch had moved, and undoes it if it had
// not. If neither is possible the error is a *StuckLandingError, and nothing has changed.
func (r *Repository) recoverLanding(ctx context.Context, repo *git.Repo) error {
	note, err := r.store.ReadLandingJournal(r.ID)
	if err != nil || note == nil {
		return err
	}
	var a update.Update
	if err := json.Unmarshal(note.Update, &a); err != nil {
		return &StuckLandingError{ID: note.InvocationID, Path: r.store.LandingJournalPath(r.ID), Err: err}
	}
	done, err := update.Recover(ctx, repo, a)
	if err != nil {
		return &StuckLandingError{ID: note.InvocationID, Path: r.store.LandingJournalPath(r.ID), Err: err}
	}
	if note.Verb == verbPush { // a merge before a push has no record
		if done {
			r.warn("'land --push' was interrupted; what had to be merged is: %s is at %s, and not pushed", shortBranch(a.Branch), a.New)
		}
		return r.store.RemoveLandingJournal(r.ID)
	}
	if !done {
		r.warn("'%s %s' was interrupted; all of it was undone", note.Verb, note.InvocationID)
		return r.store.RemoveLandingJournal(r.ID)
	}
	r.warn("'%s %s' was interrupted; it is done: %s is at %s", note.Verb, note.InvocationID, shortBranch(a.Branch), a.New)
	entry := r.store.Invocation(r.ID, note.InvocationID, nil)
	if entry.Defect != store.NoDefect && entry.Defect != store.MissingTree {
		return errors.Join(r.store.RemoveLandingJournal(r.ID), fmt.Errorf("%s has landed as %s, but has no record that could say so: %w", entry.ID, a.New, invocationFromEntry(entry, nil).Err()))
	}
	if note.Verb == verbUnland {
		if entry.Record.UnlandedCommit != a.New {
			if err := r.recordUnlanding(UnlandResult{Invocation: entry.ID, Commit: a.New, Before: a.Old, Branch: shortBranch(a.Branch), Landed: note.Tip}); err != nil {
				return err
			}
		}
		return r.store.RemoveLandingJournal(r.ID)
	}
	if entry.Record.Landing != store.Landed {
		if err := r.recordLanding(LandResult{
			Invocation: entry.ID, Commit: a.New, Before: a.Old, Branch: shortBranch(a.Branch), Strategy: note.Strategy, Tip: note.Tip,
		}, time.Time{}); err != nil {
			return err
		}
	}
	if err := r.store.RemoveLandingJournal(r.ID); err != nil {
		return err
	}
	return r.cleanUpLanded(ctx, repo, note.InvocationID)
}

// checkLandings finds a landing that was killed.
func (x *checkRun) checkLandings(context.Context) error {
	if x.changing {
		return nil
	}
	if !x.hasInterruptedLanding() {
		return x.checkLeftoverStages()
	}
	f := Finding{
		Code: "interrupted-land", Path: x.store.LandingJournalPath(x.ID), AtRisk: true,
		Problem: "somebody was killed while it landed; the next command finishes or undoes that",
	}
	note, err := x.store.ReadLandingJournal(x.ID)
	switch {
	case err != nil:
		f.ID, f.Problem = "landing.json", err.Error()
	case note == nil:
		return nil
	default:
		f.ID = note.InvocationID
	}
	x.addFinding(f, func(ctx context.Context) error { return x.recoverLanding(ctx, x.repo) })
	return nil
}

// checkLeftoverStages finds the staging directories of killed landings that no journal refers to any more.
func (x *checkRun) checkLeftoverStages() error {
	strays, err := update.LeftoverStagings(x.repo, x.presentTrees()...)
	for _, s := range strays {
		f := Finding{Code: "stray-landing", ID: x.relativePath(s.Path), Path: s.Path, AtRisk: s.MayHoldFiles, Problem: "somebody was killed while something landed; nothing of yours is in there"}
		if s.MayHoldFiles {
			f.Problem = "somebody was killed while something landed, and there is no note of that; files of yours may be in there"
		}
		x.addFinding(f, func(ctx context.Context) error { return update.RecoverStaging(ctx, x.repo, s) })
	}
	return err
}

// presentTrees lists the integration trees, which may contain staging directories of landings.
func (x *checkRun) presentTrees() []string {
	var trees []string
	for _, e := range x.worktrees {
		if e.Defect == store.NoDefect && e.Record.State == store.Present {
			trees = append(trees, e.TreePath)
		}
	}
	return trees
}
