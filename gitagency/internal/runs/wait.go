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

// Wait waits until the run of an invocation has ended, and returns the invocation as it is then.
func Wait(ctx context.Context, r *core.Repository, id string) (core.Invocation, error) {
	for {
		inv, err := r.Invocation(id)
		if err == nil && inv.SessionID == "" {
			err = &NoRunError{ID: inv.ID}
		}
		if err != nil || !inv.IsSupervised() {
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
	supervised := inv.IsSupervised()
	label := r.Store.InvocationDir(r.ID, inv.ID)
	asked := map[int]bool{}
	askCommands := func() error {
		for _, pid := range proc.FindSupervisors(label) {
			if !asked[pid] {
				asked[pid] = true
				if err := proc.StopTask(pid); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if supervised { // it ends its command itself, and records that
		if err := proc.StopTask(inv.PID); err != nil {
			return inv, false, err
		}
	} else if err := askCommands(); err != nil {
		return inv, false, err
	}
	if !supervised && len(asked) == 0 {
		return inv, false, nil
	}
	waiting, cancel := context.WithTimeout(ctx, 2*sandbox.DefaultGrace+finishTimeout)
	defer cancel()
	if supervised {
		inv, err = Wait(waiting, r, inv.ID)
	} else {
		err = waitForCommands(waiting, label)
	}
	if err != nil && ctx.Err() == nil {
		err = &fault.BusyError{ID: inv.ID, Waited: 2*sandbox.DefaultGrace + finishTimeout, Holders: proc.FileUsers(label)}
	}
	if err == nil {
		inv, err = r.Invocation(inv.ID)
	}
	return inv, true, err
}

// waitForCommands waits until no command runs in a sandbox.
func waitForCommands(ctx context.Context, label string) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for len(proc.FindSupervisors(label)) > 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
	return nil
}

// Questions lists the invocations whose agent waits for an answer, oldest question first.
func Questions(r *core.Repository) ([]core.Invocation, error) {
	all, err := r.Invocations(core.ListRequest{})
	var waiting []core.Invocation
	for _, inv := range all {
		if inv.Status == store.StatusBlocked && inv.Question != "" {
			waiting = append(waiting, inv)
		}
	}
	slices.SortStableFunc(waiting, func(a, b core.Invocation) int { return a.AskedAt.Compare(b.AskedAt) })
	return waiting, err
}
