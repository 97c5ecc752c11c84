package platform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/transport"
	"github.com/git-agency/git-agency/gitagency/internal/platform/engine"
	"github.com/git-agency/git-agency/gitagency/internal/platform/hub"
	"github.com/git-agency/git-agency/gitagency/internal/procfs"
	"github.com/git-agency/git-agency/gitagency/internal/runs"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// NodeReport is what a node of a platform told about itself, in texts of one line.
type NodeReport struct {
	Node        string        // its name; empty if none is known
	Git         string        // version of git
	Tool        string        // version of git-agency
	Isolation   string        // wall that was built
	ClockOffset time.Duration // by which its clock is at least ahead of that of this machine; negative: behind
	Took        time.Duration // from the submission until the engine reported the end of the job

	NoAnswer string // what the engine says about a job that had not ended in time; empty if it had
	Problem  string // why the node cannot execute runs; empty if it can
}

// errNoAnswer ends the wait for a node.
var errNoAnswer = errors.New("no node has answered in time")

// ProbeNode has a node of a platform execute git in a sandbox, as a run executes its agent, and returns what it told: the job and its
// result go through the hub, and the node builds the walls of the primitives. The sandbox has no files. Afterwards the job, the
// sandbox, the refs and the record are removed; the repository of the node stays.
//
//  1. Write the record of the probe.
//  2. Push the job to the hub.
//  3. Submit it to the engine, and wait until it has ended, but not longer than the limit.
//  4. Read the result.
//  5. Remove the job and its result, and then the record.
//
// A process killed between 1 and 5 leaves the record, by which ForgetProbes finds the rest.
func (c *Client) ProbeNode(ctx context.Context, prims store.Primitives, limit time.Duration) (report NodeReport, err error) {
	hubName, err := c.r.Settings.Hub()
	if err != nil {
		return report, err
	}
	id, at, err := c.r.AllocateID(ctx, func(id string) (string, error) {
		what, _ := store.FirstExisting(c.r.Store.InvocationDir(c.r.ID, id), c.r.Store.SandboxDir(c.r.ID, id), c.r.Store.ProbePath(c.r.ID, id))
		return what, nil
	})
	if err != nil {
		return report, err
	}
	rec := store.Probe{ID: id, Platform: prims.Platform, Hub: hubName, PID: os.Getpid(), PIDStarted: procfs.Identity(os.Getpid()), StartedAt: at}
	p, err := c.openProbe(ctx, rec, prims)
	if err != nil {
		return report, err
	}
	rec.Hub = p.hub.Name
	if err := c.withLock(ctx, func() error {
		if err := c.r.Store.EnsureRepo(c.r.ID, c.r.CommonDir, c.r.Now()); err != nil {
			return err
		}
		return c.r.Store.WriteProbe(c.r.ID, rec)
	}); err != nil {
		return report, err
	}
	defer func() {
		cleaning, done := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout+cancelTimeout)
		defer done()
		if forgetErr := p.forget(cleaning); forgetErr != nil {
			c.r.Warn("what is left of the probe of %s could not be removed: %v; to try again: git agency prune", prims.Platform, forgetErr)
		}
	}()
	return p.ask(ctx, prims, limit)
}

// ForgetProbes removes what probes of killed processes have left.
func (c *Client) ForgetProbes(ctx context.Context) error {
	all, err := c.r.Store.Probes(c.r.ID)
	for _, rec := range all {
		if procfs.IsAlive(rec.PID, rec.PIDStarted) {
			continue
		}
		p, probeErr := c.openProbe(ctx, rec, store.Primitives{Platform: rec.Platform})
		if probeErr == nil {
			probeErr = p.forget(ctx)
		}
		if probeErr != nil {
			err = errors.Join(err, fmt.Errorf("an interrupted probe of %s has left job %s: %w; if the platform or the hub does not exist any more, remove %s",
				rec.Platform, jobName(rec.ID, 1), probeErr, c.r.Store.ProbePath(c.r.ID, rec.ID)))
		}
	}
	return err
}

// probe is a job that asks a node what it offers.
type probe struct {
	c        *Client
	id       string
	platform settings.Platform
	driver   engine.Driver
	hub      *hub.Hub
	job      engine.Ref
}

// openProbe opens the engine and the hub of a probe. prims may name the image of its container.
func (c *Client) openProbe(ctx context.Context, rec store.Probe, prims store.Primitives) (*probe, error) {
	p := &probe{c: c, id: rec.ID, job: engine.Ref{Name: jobName(rec.ID, 1)}}
	platform, err := c.r.Settings.Platform(rec.Platform)
	if err != nil {
		return nil, err
	}
	p.platform = platform.WithImageOf(prims)
	if p.driver, err = openDriver(p.platform); err != nil {
		return nil, err
	}
	if p.platform.SSH == "" {
		p.job.Dir = c.r.Store.ProbesDir(c.r.ID)
	}
	p.hub, err = openHub(ctx, c.r, rec.Hub, c.r.Git.ObjectFormat().ZeroID())
	return p, err
}

// ask submits the job, and reads what the node answers.
func (p *probe) ask(ctx context.Context, prims store.Primitives, limit time.Duration) (report NodeReport, err error) {
	c := p.c
	session, err := runs.NewSessionID()
	if err != nil {
		return report, err
	}
	job := hub.Job{
		Invocation: p.id, Probe: true, Platform: prims.Platform, Mode: store.ModeHeadless, Primitives: nodePrimitives(p.platform, prims),
		Run: store.RunFields{SessionID: session, Command: []string{"git", "version"}}, Number: 1, TimeoutMS: limit.Milliseconds(), Submitted: c.r.Now(),
		Settings: append(unattended(), hub.Setting{Key: "user.name", Value: program}, hub.Setting{Key: "user.email", Value: program + "@localhost"}),
	}
	if job.Base, err = hub.WriteEmptyCommit(ctx, c.r.Git, c.r.Git.ObjectFormat(), core.ToolIdentity); err != nil {
		return report, err
	}
	commit, err := job.Write(ctx, c.r.Git, core.ToolIdentity)
	if err != nil {
		return report, err
	}
	if err := p.hub.Update(ctx, transport.RefUpdate{Ref: hub.JobRef(p.id), New: commit}); err != nil {
		return report, fmt.Errorf("the job cannot be pushed to the hub: %w", err)
	}
	request := newRequest(p.platform, p.hub, commit, job, "")
	request.Name, request.LogDir = p.job.Name, p.job.Dir
	began := time.Now()
	p.job.ID, err = p.driver.Submit(ctx, request)
	if rejected := (*engine.RejectedError)(nil); errors.As(err, &rejected) {
		report.Problem = quote.OneLine(explainRejected(err, p.platform, p.hub).Error(), maxText)
		return report, nil
	}
	if err != nil {
		return report, err
	}
	st, err := p.wait(ctx, limit)
	report.Took = time.Since(began)
	report.Node = quote.OneLine(st.Node, maxText)
	if errors.Is(err, errNoAnswer) {
		report.NoAnswer = quote.OneLine(cmp.Or(st.Detail, string(st.State), "the job is not known"), maxText)
		return report, nil
	}
	if err != nil {
		return report, err
	}
	result, found, err := p.readResult(ctx, job.Base)
	if err == nil && found {
		report.fill(result, job.Submitted, c.r.Now())
	} else if err == nil {
		report.Problem = quote.OneLine(c.lostJob(ctx, prims.Platform, p.job, st).Reason, maxText)
	}
	return report, err
}

// wait waits until the job has ended, and returns its last state. The error is errNoAnswer after the limit.
func (p *probe) wait(ctx context.Context, limit time.Duration) (last engine.Status, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()
	var askErr error
	err = p.driver.Watch(ctx, []engine.Ref{p.job}, func(now []engine.Status) (goOn bool) {
		last, askErr = engine.Status{}, nil
		if len(now) > 0 {
			last = now[0]
		}
		return last.State == engine.Queued || last.State == engine.Running
	}, func(err error) { askErr = err })
	if errors.Is(err, errNoAnswer) && askErr != nil {
		return last, askErr
	}
	return last, err
}

// readResult reads the result from the hub, if there is one.
func (p *probe) readResult(ctx context.Context, base string) (res hub.Result, found bool, err error) {
	commits, err := p.hub.Results(ctx, p.id)
	commit := commits[p.id]
	if err != nil || commit == "" {
		return res, false, err
	}
	read := func(repo *git.Repo) (err error) {
		res, err = hub.ReadResult(ctx, repo, commit, p.id)
		return err
	}
	if p.hub.IsRepository() {
		err = read(p.c.r.Git)
	} else {
		err = p.hub.Receive(ctx, p.id, commit, base, p.c.r.LockAndRecover, read)
	}
	return res, true, err
}

// fill adds what is in the result of a job that was submitted and received at these times of this machine.
func (n *NodeReport) fill(res hub.Result, submitted, received time.Time) {
	line := func(text string) string { return quote.OneLine(text, maxText) }
	n.Node, n.Git, n.Tool, n.Isolation = line(res.Node), line(res.Record.Git), line(res.Record.Tool), line(res.Record.Isolation)
	if res.Reason != store.StatusFinished {
		n.Problem = cmp.Or(line(res.Record.Reason), fmt.Sprintf("git ended with exit code %d", res.Exit))
	}
	switch at := res.Record.EndedAt; {
	case at.Before(submitted):
		n.ClockOffset = at.Sub(submitted)
	case at.After(received):
		n.ClockOffset = at.Sub(received)
	}
}

// forget removes the job, what it left in the hub, and at last the record of the probe. A node that begins without its job in the hub
// does nothing.
func (p *probe) forget(ctx context.Context) error {
	if err := p.hub.Forget(ctx, p.id); err != nil {
		return err
	}
	known, err := p.driver.List(ctx, []engine.Ref{p.job})
	if err == nil && len(known) > 0 && known[0].State != engine.Ended {
		if err = p.driver.Cancel(ctx, p.job); err == nil {
			_, err = p.wait(ctx, stopTimeout)
		}
		if errors.Is(err, errNoAnswer) {
			err = errors.New("its job was told to end, and still runs")
		}
	}
	if err == nil {
		err = p.driver.Reap(ctx, p.job)
	}
	if err == nil { // it may have pushed a result when it was told to end
		err = p.hub.Forget(ctx, p.id)
	}
	if err != nil {
		return err
	}
	return p.c.withLock(ctx, func() error {
		return errors.Join(p.c.r.Store.RemoveProbe(p.c.r.ID, p.id), p.c.r.Store.RemoveUnusedRepo(p.c.r.ID))
	})
}

// withLock calls do with the repository lock held.
func (c *Client) withLock(ctx context.Context, do func() error) error {
	_, unlock, err := c.r.LockAndRecover(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return do()
}
