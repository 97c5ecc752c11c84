package platform

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/git/transport"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/platform/engine"
	"github.com/git-agency/git-agency/gitagency/internal/platform/hub"
	"github.com/git-agency/git-agency/gitagency/internal/procfs"
	"github.com/git-agency/git-agency/gitagency/internal/runs"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Refresh asks engines and hubs about runs that go on, each of them once, and records what they say: the node of a job, and the
// results of those that have ended. Of engines and hubs that cannot be asked, the runs stay as they are; the errors say why. It
// reports whether a record has changed.
func (c *Client) Refresh(ctx context.Context, ids ...string) (changed bool, err error) {
	var open []store.InvocationMeta
	for _, id := range ids {
		m := c.record(id)
		if !m.HasOpenJob() || m.PlatformState == store.PlatformSubmitting && procfs.IsAlive(m.PID, m.PIDStarted) {
			continue
		}
		open = append(open, m)
	}
	for _, group := range groupBy(open, func(m store.InvocationMeta) string { return m.Primitives.Platform }) {
		did, groupErr := c.refreshPlatform(ctx, group)
		changed, err = changed || did, errors.Join(err, groupErr)
	}
	return changed, err
}

// groupBy groups records by a key, in the order in which the keys occur.
func groupBy(all []store.InvocationMeta, key func(store.InvocationMeta) string) (groups [][]store.InvocationMeta) {
	at := map[string]int{}
	for _, m := range all {
		i, known := at[key(m)]
		if !known {
			i = len(groups)
			at[key(m)], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], m)
	}
	return groups
}

// hubOf returns the name of the hub of the last run in a record.
func hubOf(m store.InvocationMeta) string { return m.Hub }

// refreshPlatform refreshes the runs of one platform. Where the hub is the repository, results cost nothing to look for, and the engine
// is asked only about runs without a final one.
func (c *Client) refreshPlatform(ctx context.Context, all []store.InvocationMeta) (changed bool, err error) {
	var rest []store.InvocationMeta
	var failed []error
	for _, group := range groupBy(all, hubOf) {
		if group[0].Hub != "" {
			rest = append(rest, group...)
			continue
		}
		left, err := c.recordFinal(ctx, group)
		changed, rest, failed = changed || len(left) < len(group), append(rest, left...), append(failed, err)
	}
	if len(rest) == 0 {
		return changed, errors.Join(failed...)
	}
	states, err := c.askEngine(ctx, rest)
	if err != nil {
		return changed, errors.Join(append(failed, err)...)
	}
	var ended []store.InvocationMeta
	for _, m := range rest {
		st := states[m.InvocationID]
		if st.State == engine.Queued || st.State == engine.Running {
			did, err := c.recordState(m, st)
			changed, failed = changed || did, append(failed, err)
		} else {
			ended = append(ended, m)
		}
	}
	for _, group := range groupBy(ended, hubOf) {
		did, err := c.recordEnded(ctx, group, states)
		changed, failed = changed || did, append(failed, err)
	}
	return changed, errors.Join(failed...)
}

// askEngine asks the engine of a platform about all runs at once. Those that it does not know are not in the result.
func (c *Client) askEngine(ctx context.Context, all []store.InvocationMeta) (map[string]engine.Status, error) {
	driver, _, err := openEngine(c.r, all[0].Primitives.Platform)
	if err != nil {
		return nil, err
	}
	refs, byName := make([]engine.Ref, len(all)), map[string]string{}
	for i, m := range all {
		refs[i] = ref(c.r, m)
		byName[refs[i].Name] = m.InvocationID
	}
	listed, err := driver.List(ctx, refs)
	states := map[string]engine.Status{}
	for _, st := range listed {
		states[byName[st.Name]] = st
	}
	return states, err
}

// recordFinal records the end of the runs of which the repository has a final result, and returns the others.
func (c *Client) recordFinal(ctx context.Context, group []store.InvocationMeta) (left []store.InvocationMeta, err error) {
	h, err := openHub(ctx, c.r, group[0].Hub, group[0].BaseCommit)
	if err != nil {
		return group, err
	}
	found, err := c.findResults(ctx, h, group)
	if err != nil {
		return group, err
	}
	var failed []error
	for _, m := range group {
		res, is := found[m.InvocationID]
		if !is || res.Reason == "" || !res.IsFinal() {
			left = append(left, m)
		} else if err := c.recordEnd(ctx, h, m, engine.Status{}, &res); err != nil {
			failed = append(failed, err)
		}
	}
	return left, errors.Join(failed...)
}

// recordEnded records the end of runs with one hub whose jobs have ended, or are not known to the engine.
func (c *Client) recordEnded(ctx context.Context, group []store.InvocationMeta, states map[string]engine.Status) (changed bool, err error) {
	h, err := openHub(ctx, c.r, group[0].Hub, group[0].BaseCommit)
	if err != nil {
		return false, err
	}
	found, err := c.findResults(ctx, h, group)
	if err != nil {
		return false, err
	}
	var failed []error
	for _, m := range group {
		var result *hub.Result
		if res, is := found[m.InvocationID]; is {
			result = &res
		}
		err := c.recordEnd(ctx, h, m, states[m.InvocationID], result)
		changed, failed = changed || err == nil, append(failed, err)
	}
	return changed, errors.Join(failed...)
}

// findResults returns the results in the hub of the last runs of some invocations. A result of an earlier run does not count. Those of
// another repository, and those that are not valid, have only their commit.
func (c *Client) findResults(ctx context.Context, h *hub.Hub, of []store.InvocationMeta) (map[string]hub.Result, error) {
	ids := make([]string, len(of))
	for i, m := range of {
		ids[i] = m.InvocationID
	}
	commits, err := h.Results(ctx, ids...)
	if err != nil {
		return nil, err
	}
	found := map[string]hub.Result{}
	for _, m := range of {
		commit := commits[m.InvocationID]
		if commit == "" || commit == m.ResultCommit {
			continue
		}
		res := hub.Result{Commit: commit, Invocation: m.InvocationID}
		if h.IsRepository() {
			read, err := hub.ReadResult(ctx, c.r.Git, commit, m.InvocationID)
			if err == nil && read.Number != m.Runs {
				continue
			}
			if err == nil {
				res = read
			} // else it is refused when its job has ended
		}
		found[m.InvocationID] = res
	}
	return found, nil
}

// recordState records what the engine says about a job that has not ended.
func (c *Client) recordState(m store.InvocationMeta, st engine.Status) (changed bool, err error) {
	state := store.PlatformQueued
	if st.State == engine.Running {
		state = store.PlatformRunning
	}
	if m.PlatformState == state && m.PlatformJob == st.ID && m.PlatformDetail == st.Detail && m.PlatformNode == st.Node && m.Attempt == st.Attempt {
		return false, nil
	}
	err = c.r.Store.UpdateInvocationMetaIf(c.r.ID, m.InvocationID, func(now *store.InvocationMeta) bool {
		if !now.HasOpenJob() || now.Runs != m.Runs {
			return false
		}
		now.PlatformState, now.PlatformJob, now.PlatformDetail, now.PlatformNode, now.Attempt = state, st.ID, st.Detail, st.Node, st.Attempt
		now.PID, now.PIDStarted = 0, ""
		changed = true
		return true
	})
	return changed, err
}

// recordEnd records the end of a run, from its result or, without one, from what the engine says. st is the zero value for a job that
// the engine does not know or was not asked about.
func (c *Client) recordEnd(ctx context.Context, h *hub.Hub, m store.InvocationMeta, st engine.Status, result *hub.Result) (err error) {
	id := m.InvocationID
	unlock, err := lock.HoldDir(ctx, c.r.Store.ImportLockDir(c.r.ID, id)) // one process at a time imports a result
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	now := c.record(id)
	if !now.HasOpenJob() || now.Runs != m.Runs { // another process did it
		return nil
	}
	end := runs.JobEnd{}
	if result != nil {
		end, err = c.importResult(ctx, h, now, result.Commit)
		switch {
		case errors.Is(err, errOtherRun):
			end = c.lostRun(ctx, now, st)
			if settled, err := c.settleLost(ctx, h, now, st, result.Commit); err != nil || !settled {
				return err
			}
		case isRefusal(c.r, err):
			end = failedRun("its result was refused: " + err.Error())
		case err != nil:
			return fmt.Errorf("the result of %s cannot be imported: %w", id, err)
		case end.Status == store.StatusStopped && !now.StopRequested:
			end.Status, end.Reason = c.interruptedAs(now, st)
		}
	} else {
		end = c.lostRun(ctx, now, st)
		settled, err := c.settleLost(ctx, h, now, st, "")
		if err != nil || !settled {
			return err
		}
	}
	change := end.Change
	end.Change = func(m *store.InvocationMeta) {
		if st.Node != "" && m.PlatformNode == "" {
			m.PlatformNode = st.Node
		}
		if st.ID != "" {
			m.PlatformJob = st.ID
		}
		m.StopRequested = false
		if change != nil {
			change(m)
		}
	}
	if err := runs.EndJob(ctx, c.r, id, end, func(last func()) { last() }); err != nil {
		return err
	}
	c.mu.Lock()
	c.results[id] = end.Result
	c.mu.Unlock()
	if result == nil { // it is cleaned up
		return nil
	}
	return c.cleanUp(ctx, now)
}

// settleLost makes sure that no job can work on a run whose end is recorded without a result. settled is false if the hub or
// the engine has news of the run; the next Refresh records its end. other is a result of another run that is in the hub; empty for none.
func (c *Client) settleLost(ctx context.Context, h *hub.Hub, m store.InvocationMeta, st engine.Status, other string) (settled bool, err error) {
	if st.State == "" && m.PlatformJob == "" { // a client of the engine may still be starting the job; without its ref in the hub, the node ends at once
		refs, err := h.Refs(ctx, m.InvocationID)
		if job := hub.JobRef(m.InvocationID); err == nil && refs[job] == m.JobCommit && m.JobCommit != "" {
			err = h.Update(ctx, transport.RefUpdate{Ref: job, Old: m.JobCommit})
		}
		if err != nil {
			return false, err
		}
		if states, err := c.askEngine(ctx, []store.InvocationMeta{m}); err != nil || len(states) > 0 {
			return false, err
		}
	}
	if err := c.cleanUp(ctx, m); err != nil {
		return false, err
	}
	found, err := c.findResults(ctx, h, []store.InvocationMeta{m}) // a job that was told to end has pushed what it had
	late, is := found[m.InvocationID]
	return !is || late.Commit == other, err
}

// cleanUp removes what is kept only as long as a run goes on. The refs in the hub stay until the invocation ends.
func (c *Client) cleanUp(ctx context.Context, m store.InvocationMeta) error {
	driver, _, err := openEngine(c.r, m.Primitives.Platform)
	if err == nil {
		err = driver.Reap(ctx, ref(c.r, m))
	}
	if err != nil {
		c.r.Warn("what %s keeps of the job of %s could not be removed: %v", c.engineLabel(m.Primitives.Platform), m.InvocationID, err)
	}
	return c.removeEnvironment(m.InvocationID)
}

// failedRun returns the end of a run of which there is no result.
func failedRun(reason string) runs.JobEnd {
	return runs.JobEnd{Result: runs.Result{Status: store.StatusFailed, Reason: reason, ExitCode: runs.ExitFailed}}
}

// lostRun returns the end of a run that left no result, by what the engine says.
func (c *Client) lostRun(ctx context.Context, m store.InvocationMeta, st engine.Status) runs.JobEnd {
	if m.StopRequested && m.PlatformState != store.PlatformRunning {
		return runs.JobEnd{Result: runs.Result{Status: store.StatusStopped, Reason: "its job had not begun", ExitCode: runs.ExitStopped}}
	}
	if m.StopRequested {
		return runs.JobEnd{Result: runs.Result{Status: store.StatusStopped, Reason: "it left no result", ExitCode: runs.ExitStopped}}
	}
	if st.State == "" && m.PlatformJob == "" {
		return failedRun("it was not submitted: git-agency was killed before it had submitted the job")
	}
	st.Node = cmp.Or(st.Node, m.PlatformNode)
	return c.lostJob(ctx, m.Primitives.Platform, ref(c.r, m), st)
}

// lostJob returns the end of the run of a job that left no result, by what the engine says.
func (c *Client) lostJob(ctx context.Context, platform string, job engine.Ref, st engine.Status) runs.JobEnd {
	label := c.engineLabel(platform)
	on := ""
	if st.Node != "" {
		on = " on " + st.Node
	}
	switch {
	case st.State == "":
		return failedRun(label + " does not know its job " + job.ID + " any more, and it left no result")
	case st.Reason == engine.NodeLost:
		return failedRun("its node was lost" + on + ", and it left no result; work that it did not push may still be there")
	case st.Reason == engine.TimedOut:
		end := failedRun(label + " ended it" + on + " because of a time limit, and it left no result")
		end.Status, end.ExitCode = store.StatusTimedOut, runs.ExitTimedOut
		return end
	case st.Reason == engine.Cancelled:
		end := failedRun("its job was cancelled" + on + ", and it left no result")
		end.Status, end.ExitCode = store.StatusStopped, runs.ExitStopped
		return end
	case st.Reason == engine.Preempted:
		return failedRun("it was preempted" + on + ", and it left no result")
	case st.Reason == engine.NoMemory:
		return failedRun(label + " killed it" + on + ": it used more memory than its job may")
	case st.Reason == engine.NotBegun:
		return failedRun(label + " could not start its job" + on + ": " + st.Detail)
	case st.Exit != nil && *st.Exit == exitNotFound:
		return failedRun("there is no git-agency" + on + "; install it where the job finds it, such as in a shared home directory")
	case st.Exit != nil:
		return failedRun(fmt.Sprintf("its job ended%s with exit code %d, and left no result%s", on, *st.Exit, c.lastStderrLine(ctx, platform, job)))
	}
	return failedRun("its job ended" + on + ", and left no result" + c.lastStderrLine(ctx, platform, job) + "; work that it did not push may still be there")
}

// exitNotFound is the exit code of a shell that does not find a program.
const exitNotFound = 127

// interruptedAs returns the status of a run that was told to end, not by us.
func (c *Client) interruptedAs(m store.InvocationMeta, st engine.Status) (status, reason string) {
	label := c.engineLabel(m.Primitives.Platform)
	switch st.Reason {
	case engine.Preempted:
		return store.StatusStopped, label + " preempted it; what it had done is kept"
	case engine.TimedOut:
		return store.StatusTimedOut, label + " ended it because of a time limit; what it had done is kept"
	case engine.NodeLost:
		return store.StatusStopped, "its node was lost; what it had done is kept"
	}
	return store.StatusStopped, "its job was cancelled; what it had done is kept"
}
