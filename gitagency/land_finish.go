package gitagency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// hasInterruptedLanding reports whether a landing was interrupted. The caller holds the repository lock; otherwise the
// landing may still be running.
func (r *Repository) interruptedLanding() bool {
	_, there := store.Taken(r.store.LandingPath(r.ID))
	return there
}

// recoverLanding finishes an interrupted landing, unland or push merge if the branch had moved, and undoes it if it had
// not. If neither is possible the error is a *StuckLandingError, and nothing has changed.
func (r *Repository) finishLanding(ctx context.Context, repo *git.Repo) error {
	note, err := r.store.Landing(r.ID)
	if err != nil || note == nil {
		return err
	}
	var a git.Advance
	if err := json.Unmarshal(note.Advance, &a); err != nil {
		return &StuckLandingError{ID: note.InvocationID, Path: r.store.LandingPath(r.ID), Err: err}
	}
	done, err := repo.FinishAdvance(ctx, a)
	if err != nil {
		return &StuckLandingError{ID: note.InvocationID, Path: r.store.LandingPath(r.ID), Err: err}
	}
	if note.Verb == verbPush { // a merge before a push has no record
		if done {
			r.warn("'land --push' was interrupted; what had to be merged is: %s is at %s, and not pushed", short(a.Branch), a.New)
		}
		return r.store.RemoveLanding(r.ID)
	}
	if !done {
		r.warn("'%s %s' was interrupted; all of it was undone", note.Verb, note.InvocationID)
		return r.store.RemoveLanding(r.ID)
	}
	r.warn("'%s %s' was interrupted; it is done: %s is at %s", note.Verb, note.InvocationID, short(a.Branch), a.New)
	entry := r.store.Invocation(r.ID, note.InvocationID, nil)
	if entry.Broken != store.Whole && entry.Broken != store.MissingTree {
		return errors.Join(r.store.RemoveLanding(r.ID), fmt.Errorf("%s has landed as %s, but has no record that could say so: %w", entry.ID, a.New, invocation(entry, nil).Err()))
	}
	if note.Verb == verbUnland {
		if entry.Record.UnlandedCommit != a.New {
			if err := r.recordUnlanding(Unlanded{Invocation: entry.ID, Commit: a.New, Before: a.Old, Branch: short(a.Branch), Landed: note.Tip}); err != nil {
				return err
			}
		}
		return r.store.RemoveLanding(r.ID)
	}
	if entry.Record.Landing != store.Landed {
		if err := r.recordLanding(Landed{
			Invocation: entry.ID, Commit: a.New, Before: a.Old, Branch: short(a.Branch), Strategy: note.Strategy, Tip: note.Tip,
		}, time.Time{}); err != nil {
			return err
		}
	}
	if err := r.store.RemoveLanding(r.ID); err != nil {
		return err
	}
	return r.endLanded(ctx, repo, note.InvocationID)
}

// checkLandings finds a landing that was killed.
func (x *examination) landings(context.Context) error {
	if x.unsettled {
		return nil
	}
	if !x.interruptedLanding() {
		return x.strayLandings()
	}
	f := Finding{
		Code: "interrupted-land", Path: x.store.LandingPath(x.ID), AtRisk: true,
		What: "somebody was killed while it landed; the next command finishes or undoes that",
	}
	note, err := x.store.Landing(x.ID)
	switch {
	case err != nil:
		f.ID, f.What = "landing.json", err.Error()
	case note == nil:
		return nil
	default:
		f.ID = note.InvocationID
	}
	x.found(f, func(ctx context.Context) error { return x.finishLanding(ctx, x.repo) })
	return nil
}

// checkLeftoverStages finds the staging directories of killed landings that no note refers to any more.
func (x *examination) strayLandings() error {
	strays, err := x.repo.StrayStages(x.landingTrees()...)
	for _, s := range strays {
		f := Finding{Code: "stray-landing", ID: x.relative(s.Path), Path: s.Path, AtRisk: s.Moved, What: "somebody was killed while something landed; nothing of yours is in there"}
		if s.Moved {
			f.What = "somebody was killed while something landed, and there is no note of that; files of yours may be in there"
		}
		x.found(f, func(ctx context.Context) error { return x.repo.EndStray(ctx, s) })
	}
	return err
}

// presentTrees lists the integration trees, which may contain staging directories of landings.
func (x *examination) landingTrees() []string {
	var trees []string
	for _, e := range x.worktrees {
		if e.Broken == store.Whole && e.Record.State == store.Present {
			trees = append(trees, e.Tree)
		}
	}
	return trees
}
