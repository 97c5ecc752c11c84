package platform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/platform/hub"
	"github.com/git-agency/git-agency/gitagency/internal/runs"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Execute submits the next run of an invocation, and waits until it has ended, as runs.Execute does with a run on this machine.
// When ctx ends, it stops the run; once req.Force is closed too, it does not wait for the end. A process that is killed leaves the run
// as it is.
func (c *Client) Execute(ctx context.Context, req runs.ExecuteRequest) (runs.Result, error) {
	if err := c.Submit(ctx, req.ID); err != nil {
		return runs.Result{}, err
	}
	if req.OnBegin != nil {
		req.OnBegin()
	}
	stdout, stderr, endLines := runs.LiveOutput(c.r, c.record(req.ID).Runner, req)
	output := c.followOutput(ctx, req.ID, stdout, stderr)
	inv, err := c.Wait(ctx, req.ID)
	if err != nil && context.Cause(ctx) != nil {
		stopping, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		go func() {
			select {
			case <-req.Force:
				cancel(errors.New("git-agency was interrupted again"))
			case <-stopping.Done():
			}
		}()
		inv, _, err = c.Stop(stopping, req.ID)
		cancel(nil)
		if err != nil {
			err = &interruptedError{err, context.Cause(ctx)}
		}
	}
	if err != nil {
		output.abandon()
		endLines()
		return runs.Result{}, err
	}
	_ = output.finish() // a caller that went away does not end the run
	endLines()
	return c.result(inv), nil
}

// interruptedError reports a run that was told to end because the command was interrupted, and goes on.
type interruptedError struct{ err, cause error }

func (e *interruptedError) Error() string   { return e.err.Error() }
func (e *interruptedError) Unwrap() []error { return []error{e.err, e.cause} }

// result returns how the last run of an invocation ended.
func (c *Client) result(inv core.Invocation) runs.Result {
	c.mu.Lock()
	res, known := c.results[inv.ID]
	c.mu.Unlock()
	if !known { // another process has recorded it
		res = runs.Result{
			Status: inv.Status, Reason: inv.StatusReason, Warnings: inv.Warnings, LastMessage: inv.LastMessage,
			Question: inv.Question, QuestionOptions: inv.Options,
		}
		if inv.ExitCode != nil {
			res.ExitCode = *inv.ExitCode
		}
		if c.record(inv.ID).WasRun {
			res.Exec.ContainedBy = containedByJob
		}
	}
	res.ID, res.Path = inv.ID, inv.SandboxPath
	return res
}

// Wait waits until the run of an invocation has ended, and returns the invocation as it is then.
func (c *Client) Wait(ctx context.Context, id string) (core.Invocation, error) {
	for {
		inv, err := c.r.Invocation(id)
		if err != nil || !inv.HasOpenJob() {
			return inv, err
		}
		select {
		case <-ctx.Done():
			return inv, context.Cause(ctx)
		case <-c.nextRound(inv.ID):
		}
	}
}

// nextRound returns a channel that is closed after the engine and the hub were asked about a run. All runs that are waited for are
// asked about together.
func (c *Client) nextRound(id string) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := make(chan struct{})
	c.waiting[id] = append(c.waiting[id], done)
	if !c.polls {
		c.polls = true
		go c.poll()
	}
	return done
}

// Intervals of questions. An engine serves all users of its site, so it is asked the less often the longer a run lasts; refs in the
// repository are looked at more often.
const (
	gatherTime    = 20 * time.Millisecond // in which runs are waited for that are waited for together
	firstInterval = 250 * time.Millisecond
	lastInterval  = 10 * time.Second
	hubInterval   = 200 * time.Millisecond
	warnInterval  = time.Minute // between messages that a question failed
)

// poll makes rounds as long as some run is waited for.
func (c *Client) poll() {
	ctx := context.Background()
	interval, warned := firstInterval, time.Time{}
	time.Sleep(gatherTime)
	for {
		c.mu.Lock()
		ids := make([]string, 0, len(c.waiting))
		for id := range c.waiting {
			ids = append(ids, id)
		}
		if len(ids) == 0 {
			c.polls = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		seen := c.resultsVersion() // before the round, which may miss what arrives meanwhile
		changed, err := c.Refresh(ctx, ids...)
		if err != nil && time.Since(warned) > warnInterval {
			warned = time.Now()
			c.r.Warn("%v; it will be asked again", err)
		}
		c.mu.Lock()
		for _, id := range ids {
			for _, done := range c.waiting[id] {
				close(done)
			}
			delete(c.waiting, id)
		}
		c.mu.Unlock()
		if interval = min(interval+interval/8, lastInterval); changed {
			interval = firstInterval
		}
		c.pause(interval, seen)
	}
}

// pause waits for an interval, or until a result arrives in the repository after seen.
func (c *Client) pause(interval time.Duration, seen time.Time) {
	for until := time.Now().Add(interval); time.Now().Before(until) && c.resultsVersion().Equal(seen); {
		time.Sleep(min(hubInterval, time.Until(until)))
	}
}

// resultsVersion returns a time that changes when the ref of a result is written in the repository: git makes a lock file beside it.
func (c *Client) resultsVersion() time.Time {
	fi, err := os.Stat(filepath.Join(c.r.CommonDir, hub.ResultsPrefix))
	if err != nil {
		return time.Time{} // there is none yet; another error shows in the next round
	}
	return fi.ModTime()
}

// GiveUp records the end of a run without its result.
func (c *Client) GiveUp(ctx context.Context, id string) error {
	return runs.EndJob(ctx, c.r, id, failedRun("its result was given up"), func(func()) {})
}

// cancelTimeout bounds the time in which an engine is told to end a job.
const cancelTimeout = 30 * time.Second

// stopTimeout bounds the wait for the end of a run that was stopped: engines give 30 seconds between SIGTERM and SIGKILL.
const stopTimeout = 2 * time.Minute

// Stop ends the run of an invocation, and waits until what it had done has come back. An invocation of which no run goes on stays as
// it is.
func (c *Client) Stop(ctx context.Context, id string) (_ core.Invocation, stopped bool, err error) {
	inv, err := c.r.Invocation(id)
	if err != nil || !inv.HasOpenJob() {
		return inv, false, err
	}
	m := c.record(inv.ID)
	err = c.r.Store.UpdateInvocationMetaIf(c.r.ID, inv.ID, func(m *store.InvocationMeta) bool {
		m.StopRequested = true
		return m.HasOpenJob()
	})
	if err != nil {
		return inv, false, err
	}
	driver, _, err := openEngine(c.r, m.Primitives.Platform)
	if err == nil {
		cancelling, done := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout) // an interrupt ends only the wait
		err = driver.Cancel(cancelling, ref(c.r, m))
		done()
	}
	if err != nil { // what ends it later was not the user
		undo := c.r.Store.UpdateInvocationMeta(c.r.ID, inv.ID, func(m *store.InvocationMeta) { m.StopRequested = false })
		return inv, false, errors.Join(err, undo)
	}
	inv, err = c.waitForEnd(ctx, inv.ID)
	return inv, err == nil, err
}

// waitForEnd waits for the end of a run that was told to end, as long as the engine and the hub can be asked.
func (c *Client) waitForEnd(ctx context.Context, id string) (core.Invocation, error) {
	const patience = 5 * time.Second // with an engine or a hub that cannot be asked
	for began := time.Now(); ; {
		waiting, cancel := context.WithTimeout(ctx, patience)
		inv, err := c.Wait(waiting, id)
		cancel()
		if err == nil {
			return inv, nil
		}
		err = context.Cause(ctx)
		if err == nil {
			if _, err = c.Refresh(ctx, id); err != nil {
				err = errors.New(err.Error()) // an invalid hub is not one that the user has typed now
			}
		}
		if err == nil && time.Since(began) > stopTimeout {
			err = errors.New("it still runs")
		}
		if err != nil {
			return inv, fmt.Errorf("the job of %s was told to end, and its end is not known yet: %w; to ask again: git agency show %s", id, err, id)
		}
	}
}
