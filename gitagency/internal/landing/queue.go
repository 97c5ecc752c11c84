package landing

import (
	"cmp"
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
)

// ReadyResult is the result for one invocation of Ready.
type ReadyResult struct {
	Result
	Name string // name of the invocation
	Err  error  // nil if it has landed
}

// Ready lands every submitted invocation of an integration worktree, in the order of submission, and continues past
// those that cannot land. It sets req.ID itself; the rest of req applies to each. An empty worktree means the one that
// contains the current directory. land lands each, as Land does. The error is about the queue as a whole; the result of each
// invocation holds its own.
func Ready(ctx context.Context, r *core.Repository, worktree string, req Request, land func(context.Context, *core.Repository, Request) (Result, error)) ([]ReadyResult, error) {
	wt, err := r.Worktree(worktree)
	if err != nil {
		return nil, err
	}
	if err := req.normalize(r); err != nil {
		return nil, err
	}
	ready, err := InReview(r, wt.ID)
	if err != nil {
		return nil, err
	}
	arrivals := []ReadyResult{}
	for _, inv := range ready {
		req.ID = inv.ID
		landed, err := land(ctx, r, req)
		req.CleanupLock = cmp.Or(req.CleanupLock, landed.CleanupLock)
		if landed.IsNew() {
			req.AlreadyLanded = append(req.AlreadyLanded, inv.ID)
		}
		if landed.Invocation == "" {
			landed = Result{Invocation: inv.ID, Strategy: req.Strategy, DryRun: req.DryRun, LeftOut: []snapshots.LeftOut{}}
		}
		landed.Branch = cmp.Or(landed.Branch, core.ShortBranch(inv.IntegrationBranch))
		arrivals = append(arrivals, ReadyResult{Result: landed, Name: inv.Name, Err: err})
		if ctx.Err() != nil {
			return arrivals, context.Cause(ctx)
		}
		if fault.Is[*fault.LockTimeoutError](err) || fault.Is[*fault.StuckLandingError](err) { // the others would fail in the same way
			return arrivals, err
		}
	}
	return arrivals, nil
}
