package gitagency

import (
	"cmp"
	"context"
)

// Arrival is what came of one landing of a queue.
type Arrival struct {
	Landed
	Name string // of the invocation
	Err  error  // nil when it has landed
}

// LandReady lands every changeset of an integration worktree that was submitted, in the order in which they were, and
// goes on past those that cannot land. req says how; which it says itself. An empty worktree is the one around the
// current directory. The error is that of the queue: what became of each is in its Arrival.
func (r *Repository) LandReady(ctx context.Context, worktree string, req LandRequest) ([]Arrival, error) {
	wt, err := r.Worktree(worktree)
	if err != nil {
		return nil, err
	}
	if err := req.check(r); err != nil {
		return nil, err
	}
	ready, err := r.InReview(wt.ID)
	if err != nil {
		return nil, err
	}
	arrivals := []Arrival{}
	for _, inv := range ready {
		req.ID = inv.ID
		landed, err := r.Land(ctx, req)
		if landed.New() {
			req.Stand = append(req.Stand, inv.ID)
		}
		if landed.Invocation == "" {
			landed = Landed{Invocation: inv.ID, Strategy: req.Strategy, DryRun: req.DryRun, LeftOut: []LeftOut{}}
		}
		landed.Branch = cmp.Or(landed.Branch, wt.Branch)
		arrivals = append(arrivals, Arrival{Landed: landed, Name: inv.Name, Err: err})
		if ctx.Err() != nil {
			return arrivals, context.Cause(ctx)
		}
		if is[*LockTimeoutError](err) || is[*StuckLandingError](err) { // nor will the others
			return arrivals, err
		}
	}
	return arrivals, nil
}
