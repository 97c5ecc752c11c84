package gitagency

import (
	"cmp"
	"context"
)

// LandReadyResult is the result for one invocation of LandReady.
type LandReadyResult struct {
	LandResult
	Name string // name of the invocation
	Err  error  // nil if it has landed
}

// LandReady lands every submitted invocation of an integration worktree, in the order of submission, and continues past
// those that cannot land. It sets req.ID itself; the rest of req applies to each. An empty worktree means the one that
// contains the current directory. The error is about the queue as a whole; the result of each invocation holds its own.
func (r *Repository) LandReady(ctx context.Context, worktree string, req LandRequest) ([]LandReadyResult, error) {
	wt, err := r.Worktree(worktree)
	if err != nil {
		return nil, err
	}
	if err := req.normalize(r); err != nil {
		return nil, err
	}
	ready, err := r.InReview(wt.ID)
	if err != nil {
		return nil, err
	}
	arrivals := []LandReadyResult{}
	for _, inv := range ready {
		req.ID = inv.ID
		landed, err := r.Land(ctx, req)
		if landed.IsNew() {
			req.AlreadyLanded = append(req.AlreadyLanded, inv.ID)
		}
		if landed.Invocation == "" {
			landed = LandResult{Invocation: inv.ID, Strategy: req.Strategy, DryRun: req.DryRun, LeftOut: []LeftOut{}}
		}
		landed.Branch = cmp.Or(landed.Branch, wt.Branch)
		arrivals = append(arrivals, LandReadyResult{LandResult: landed, Name: inv.Name, Err: err})
		if ctx.Err() != nil {
			return arrivals, context.Cause(ctx)
		}
		if is[*LockTimeoutError](err) || is[*StuckLandingError](err) { // the others would fail in the same way
			return arrivals, err
		}
	}
	return arrivals, nil
}
