package runs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/radar"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Names of the events of conflicts.
const (
	conflictBegan = "conflict"
	conflictEnded = "conflict-ended"
)

// Bounds of the paths in an event: agents can make any number of them.
const (
	maxConflictPaths = 20
	maxConflictPath  = 500 // bytes
)

// conflictEvent is the event of a sandbox that begins to conflict with another one, or no longer does.
type conflictEvent struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	With  string    `json:"with"`            // id of the other invocation
	Paths []string  `json:"paths,omitempty"` // the first paths in conflict; untrusted
	Count int       `json:"count,omitempty"` // number of all paths in conflict
}

// findConflicts computes with which other sandboxes this one conflicts, if it has changed since the last time, and appends
// an event for each conflict that has begun or ended. A failure is only a warning.
func (a *attempt) findConflicts(ctx context.Context) {
	if !a.changed {
		return
	}
	pairs, err := radar.PairsOf(ctx, a.repo, a.sandbox.ID)
	if errors.Is(ctx.Err(), context.Canceled) { // the run has ended, and announce computes them again
		return
	}
	a.changed = false
	if err != nil {
		a.repo.Warn("sandbox %s: conflicts with other sandboxes are not known: %v", a.sandbox.ID, err)
	}
	for _, p := range pairs {
		event, isNew, err := noteConflict(a.repo, p)
		if err != nil {
			a.repo.Warn("sandbox %s: it cannot be recorded whether it conflicts with %s: %v", a.sandbox.ID, p.B, err)
		}
		if !isNew {
			continue
		}
		a.repo.AppendEvent(a.sandbox.ID, event)
		if event.Event == conflictBegan {
			a.notifyConflict(ctx, event)
		}
	}
}

// noteConflict records whether two sandboxes conflict, and returns the event of a change. isNew is false if nothing has
// changed, or if the process of the other sandbox has recorded the change.
func noteConflict(r *core.Repository, p radar.Pair) (event conflictEvent, isNew bool, err error) {
	if p.Clean {
		isNew, err = r.Store.ClearConflict(r.ID, p.A, p.B)
		event.Event = conflictEnded
	} else {
		isNew, err = r.Store.MarkConflict(r.ID, p.A, p.B)
		event.Event, event.Count = conflictBegan, len(p.Paths)
		for _, path := range p.Paths[:min(len(p.Paths), maxConflictPaths)] {
			event.Paths = append(event.Paths, quote.Shorten(path, maxConflictPath))
		}
	}
	if !isNew {
		return conflictEvent{}, false, err
	}
	event.Time, event.With = r.EventTime(), p.B
	return event, true, err
}

// notifyConflict notifies the user of a conflict that has begun, if agency.radarNotify says so, and does not wait for it.
func (a *attempt) notifyConflict(ctx context.Context, event conflictEvent) {
	wanted, err := a.repo.Settings.Bool(settings.RadarNotifyKey, false)
	if err != nil {
		a.repo.Warn("%v", err)
	}
	if !wanted {
		return
	}
	text := "with " + event.With + ": " + event.describePaths()
	if a.req.OnEvent != nil {
		a.req.OnEvent(runner.Event{Kind: runner.Conflict, Text: text})
	}
	n := notification{Status: conflictBegan, Reason: "it conflicts " + text, ConflictWith: event.With, ConflictPaths: event.Paths}
	ctx = context.WithoutCancel(ctx)
	a.notices.Go(func() { a.notify(ctx, n) })
}

// describePaths lists the paths of the event for people.
func (e conflictEvent) describePaths() string {
	var quoted []string
	for _, path := range e.Paths {
		quoted = append(quoted, quote.Path(path))
	}
	text := strings.Join(quoted, ", ")
	if more := e.Count - len(e.Paths); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
