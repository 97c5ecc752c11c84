package runs

import (
	"context"
	"slices"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Wait waits until the run of an invocation has ended or its agent asks, and returns the invocation as it is then.
func Wait(ctx context.Context, r *core.Repository, id string) (core.Invocation, error) {
	return waitUntil(ctx, r, id, func(inv core.Invocation) bool { return !inv.IsSupervised() || inv.AsksWhileRunning() })
}

// waitUntil waits until a run is as its caller wants, and returns the invocation as it is then.
func waitUntil(ctx context.Context, r *core.Repository, id string, is func(core.Invocation) bool) (core.Invocation, error) {
	for {
		inv, err := r.Invocation(id)
		if err == nil && inv.SessionID == "" {
			err = &NoRunError{ID: inv.ID}
		}
		if err != nil || is(inv) {
			return inv, err
		}
		if err := context.Cause(ctx); err != nil {
			return inv, err
		}
		proc.WaitForExit(inv.PID, 200*time.Millisecond) // the process may go on after it has recorded the end
	}
}

// Stop ends the run of an invocation, and the other commands in its sandbox: with SIGTERM, and after the grace period of a
// command with SIGKILL. It returns the invocation as it is then. An invocation in which nothing runs stays as it is.
func Stop(ctx context.Context, r *core.Repository, id string) (_ core.Invocation, stopped bool, err error) {
	inv, err := r.Invocation(id)
	if err != nil {
		return inv, false, err
	}
	label := r.Store.InvocationDir(r.ID, inv.ID)
	const limit = 2*sandbox.DefaultGrace + finishTimeout
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if stopped = inv.IsSupervised(); stopped { // that process ends its command itself, and records the end
		if err = proc.StopTask(inv.PID); err == nil {
			_, err = waitUntil(waiting, r, inv.ID, func(inv core.Invocation) bool { return !inv.IsSupervised() })
		}
	}
	if err == nil {
		var others bool
		others, err = stopCommands(waiting, label)
		stopped = stopped || others
	}
	switch {
	case waiting.Err() != nil && ctx.Err() == nil:
		return inv, stopped, &fault.BusyError{ID: inv.ID, Waited: limit, Holders: proc.FileUsers(label)}
	case err != nil || !stopped:
		return inv, stopped, err
	}
	inv, err = r.Invocation(inv.ID)
	return inv, true, err
}

// stopCommands ends the commands in a sandbox, and returns when none runs. stopped is false if none ran.
func stopCommands(ctx context.Context, label string) (stopped bool, err error) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	requests := sandbox.StopRequests{}
	for {
		running := proc.FindSupervisors(label)
		if len(running) == 0 {
			return stopped, nil
		}
		stopped = true
		for _, pid := range running {
			if err := requests.Ask(pid); err != nil {
				return stopped, err
			}
		}
		select {
		case <-ctx.Done():
			return stopped, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// Questions lists the invocations whose agent waits for an answer, oldest question first.
func Questions(r *core.Repository) ([]core.Invocation, error) {
	all, err := r.Invocations(core.ListRequest{})
	var waiting []core.Invocation
	for _, inv := range all {
		if (inv.Status == store.StatusBlocked || inv.AsksWhileRunning()) && inv.Question != "" {
			waiting = append(waiting, inv)
		}
	}
	slices.SortStableFunc(waiting, func(a, b core.Invocation) int { return a.AskedAt.Compare(b.AskedAt) })
	return waiting, err
}
