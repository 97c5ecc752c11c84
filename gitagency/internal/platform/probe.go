package platform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
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

// maxNodeText bounds each text of a report.
const maxNodeText = 300

// ProbeNode has a node of a platform execute git in a sandbox, as a run executes its agent, and returns what it told: the job and its
// result go through the hub, and the node builds the walls of the primitives. The sandbox has no files. Afterwards the job, the
// sandbox, the refs and the record are removed; the repository of the node stays. Once force is closed, ProbeNode does not wait for
// their removal. A report that is not empty is valid also if there is an error.
//
//  1. Write the record of the probe.
//  2. Push the job to the hub.
//  3. Submit it to the engine, and record its id.
//  4. Wait until it has ended, but not longer than the limit, and read the result.
//  5. Remove the job and its result, and then the record.
//
// A process killed between 1 and 5 leaves the record, by which ForgetProbes finds the rest.
func (c *Client) ProbeNode(ctx context.Context, prims store.Primitives, limit time.Duration, force <-chan struct{}) (report NodeReport, err error) {
	p, job, err := c.newProbe(ctx, prims, limit)
	if err != nil {
		return report, err
	}
	if err := c.withLock(ctx, func() error {
		err := c.r.Store.EnsureRepo(c.r.ID, c.r.CommonDir, c.r.Now())
		if err == nil {
			err = c.r.Store.WriteProbe(c.r.ID, p.Probe)
		}
		if err != nil {
			err = errors.Join(err, c.r.Store.RemoveProbe(c.r.ID, p.ID), c.r.Store.RemoveUnusedRepo(c.r.ID))
		}
		return err
	}); err != nil {
		return report, err
	}
	report, err = p.ask(ctx, job, limit)
	cleaning, done := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout+cancelTimeout)
	defer done()
	go func() {
		select {
		case <-force:
			done()
		case <-cleaning.Done():
		}
	}()
	if forgetErr := p.forget(cleaning); forgetErr != nil {
		err = errors.Join(err, fmt.Errorf("what is left of the probe of %s could not be removed: %w; to try again: git agency prune", prims.Platform, forgetErr))
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	return report, err
}

// newProbe returns a probe, of which nothing is written but objects, and its job.
func (c *Client) newProbe(ctx context.Context, prims store.Primitives, limit time.Duration) (p *probe, job hub.Job, err error) {
	hubName, err := c.r.Settings.Hub()
	if err != nil {
		return nil, job, err
	}
	id, at, err := c.r.AllocateID(ctx, func(id string) (string, error) {
		what, _ := store.FirstExisting(c.r.Store.InvocationDir(c.r.ID, id), c.r.Store.SandboxDir(c.r.ID, id), c.r.Store.ProbePath(c.r.ID, id))
		return what, nil
	})
	if err != nil {
		return nil, job, err
	}
	p, err = c.openProbe(store.Probe{ID: id, Platform: prims.Platform, PID: os.Getpid(), PIDStarted: procfs.Identity(os.Getpid()), StartedAt: at}, prims)
	if err != nil {
		return nil, job, err
	}
	if err := p.openHub(ctx, hubName); err != nil {
		return nil, job, err
	}
	session, err := runs.NewSessionID()
	if err != nil {
		return nil, job, err
	}
	job = hub.Job{
		Invocation: id, Probe: true, Platform: prims.Platform, Mode: store.ModeHeadless, Primitives: nodePrimitives(p.platform, prims),
		Run: store.RunFields{SessionID: session, Command: []string{"git", "version"}}, Number: 1, TimeoutMS: limit.Milliseconds(), Submitted: c.r.Now(),
		Settings: append(unattended(), hub.Setting{Key: "user.name", Value: program}, hub.Setting{Key: "user.email", Value: program + "@localhost"}),
	}
	if job.Base, err = hub.WriteEmptyCommit(ctx, c.r.Git, c.r.Git.ObjectFormat(), core.ToolIdentity); err != nil {
		return nil, job, err
	}
	p.Hub = p.hub.Name
	p.JobCommit, err = job.Write(ctx, c.r.Git, core.ToolIdentity)
	return p, job, err
}

// ForgetProbes removes what probes of killed processes have left.
func (c *Client) ForgetProbes(ctx context.Context) error {
	all, err := c.r.Store.Probes(c.r.ID)
	for _, rec := range all {
		if rec.Err == nil && procfs.IsAlive(rec.PID, rec.PIDStarted) {
			continue
		}
		if probeErr := c.forgetProbe(ctx, rec); probeErr != nil {
			// A value of the record, such as its hub, is none that the user has typed: the error has no type.
			err = errors.Join(err, fmt.Errorf("an interrupted probe has left job %s: %s; if its platform or its hub does not exist any more, remove %s",
				jobName(rec.ID, 1), probeErr.Error(), c.r.Store.ProbePath(c.r.ID, rec.ID)))
		}
	}
	return err
}

// forgetProbe removes what a probe of a killed process has left. The killed process may have left a client of the engine that still
// submits the job: then the record stays.
func (c *Client) forgetProbe(ctx context.Context, rec store.Probe) error {
	if rec.Err != nil {
		return rec.Err
	}
	p, err := c.openProbe(rec, store.Primitives{Platform: rec.Platform})
	if err != nil {
		return err
	}
	hubErr := p.openHub(ctx, rec.Hub)
	if _, err := os.Stat(rec.Hub); filepath.IsAbs(rec.Hub) && errors.Is(err, fs.ErrNotExist) {
		hubErr = nil // all that was in it is gone
	}
	p.mayBeInHub, p.mayBeSubmitted = p.hub != nil, true
	if until := p.platform.SubmitsUntil(rec.StartedAt); rec.PlatformJob == "" && c.r.Now().Before(until) {
		known, err := p.driver.List(ctx, []engine.Ref{p.job})
		if err != nil {
			return errors.Join(hubErr, err)
		}
		if len(known) == 0 {
			c.r.Warn("a probe of %s was killed while its job was submitted; it is kept until %s, in case the job is still to come", rec.Platform, until.Local().Format(time.TimeOnly))
			return errors.Join(hubErr, p.forgetHub(ctx))
		}
	}
	if err := errors.Join(hubErr, p.forgetJob(ctx)); err != nil {
		return err
	}
	c.r.Warn("what an interrupted probe of %s had left was removed", rec.Platform)
	return p.forgetRecord(ctx)
}

// probe is a job that asks a node what it offers.
type probe struct {
	store.Probe
	c        *Client
	platform settings.Platform
	driver   engine.Driver
	hub      *hub.Hub // nil if it does not exist any more
	job      engine.Ref

	mayBeInHub     bool // refs of the probe may be in the hub
	mayBeSubmitted bool // the engine may have its job
}

// openProbe opens the engine of a probe. prims may name the image of its container.
func (c *Client) openProbe(rec store.Probe, prims store.Primitives) (*probe, error) {
	p := &probe{Probe: rec, c: c, job: engine.Ref{Name: jobName(rec.ID, 1), ID: rec.PlatformJob}}
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
	return p, nil
}

func (p *probe) openHub(ctx context.Context, name string) (err error) {
	p.hub, err = openHub(ctx, p.c.r, name, p.c.r.Git.ObjectFormat().ZeroID())
	return err
}

// ask submits the job, and reads what the node answers.
func (p *probe) ask(ctx context.Context, job hub.Job, limit time.Duration) (report NodeReport, err error) {
	c := p.c
	err = p.hub.Update(ctx, transport.RefUpdate{Ref: hub.JobRef(p.ID), New: p.JobCommit})
	if rejected := (*transport.RejectedError)(nil); !errors.As(err, &rejected) {
		p.mayBeInHub = true
	}
	if err != nil {
		return report, fmt.Errorf("the job cannot be pushed to the hub: %w", err)
	}
	request := newRequest(p.platform, p.hub, p.JobCommit, job, "")
	request.Name, request.LogDir = p.job.Name, p.job.Dir
	began := time.Now()
	p.job.ID, err = p.driver.Submit(ctx, request)
	if rejected := (*engine.RejectedError)(nil); errors.As(err, &rejected) {
		report.Problem = quote.OneLine(explainRejected(err, p.platform, p.hub).Error(), maxNodeText)
		return report, nil
	}
	p.mayBeSubmitted = true
	if err != nil {
		return report, err
	}
	p.PlatformJob = p.job.ID
	if err := c.withLock(ctx, func() error { return c.r.Store.WriteProbe(c.r.ID, p.Probe) }); err != nil {
		return report, err
	}
	st, err := p.wait(ctx, limit)
	if errors.Is(err, errNoAnswer) {
		report.NoAnswer = quote.OneLine(cmp.Or(st.Detail, string(st.State)), maxNodeText)
		return report, nil
	}
	if err != nil {
		return report, err
	}
	took := time.Since(began)
	result, found, err := p.readResult(ctx, job.Base)
	if err != nil {
		return report, err
	}
	report.Took, report.Node = took, quote.OneLine(st.Node, maxNodeText)
	if found {
		report.fill(result, job.Submitted, c.r.Now())
	} else {
		report.Problem = quote.OneLine(c.lostJob(ctx, p.Platform, p.job, st).Reason, maxNodeText)
	}
	return report, nil
}

// wait waits until the job has ended, and returns its last state. The error is errNoAnswer after the limit, which begins with the first
// answer of the engine.
func (p *probe) wait(ctx context.Context, limit time.Duration) (last engine.Status, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	end := time.AfterFunc(max(limit, cancelTimeout), func() { cancel(errNoAnswer) })
	defer end.Stop()
	begin := sync.OnceFunc(func() { end.Reset(limit) })
	askErr := fmt.Errorf("%s does not answer", p.c.engineLabel(p.Platform))
	err = p.driver.Watch(ctx, []engine.Ref{p.job}, func(now []engine.Status) (goOn bool) {
		begin()
		last, askErr = engine.Status{}, nil
		if len(now) > 0 {
			last = now[0]
		}
		return last.State == engine.Queued || last.State == engine.Running
	}, func(err error) {
		begin()
		askErr = err
	})
	if errors.Is(err, errNoAnswer) && askErr != nil {
		return last, askErr
	}
	return last, err
}

// readResult reads the result from the hub, if there is one.
func (p *probe) readResult(ctx context.Context, base string) (res hub.Result, found bool, err error) {
	commits, err := p.hub.Results(ctx, p.ID)
	commit := commits[p.ID]
	if err != nil || commit == "" {
		return res, false, err
	}
	read := func(repo *git.Repo) (err error) {
		res, err = hub.ReadResult(ctx, repo, commit, p.ID)
		return err
	}
	if p.hub.IsRepository() {
		err = read(p.c.r.Git)
	} else {
		err = p.hub.Receive(ctx, p.ID, commit, base, p.c.r.LockAndRecover, read)
	}
	return res, true, err
}

// fill adds what is in the result of a job that was submitted and received at these times of this machine.
func (n *NodeReport) fill(res hub.Result, submitted, received time.Time) {
	line := func(text string) string { return quote.OneLine(text, maxNodeText) }
	n.Node, n.Git, n.Tool, n.Isolation = line(res.Node), line(res.Record.Git), line(res.Record.Tool), line(res.Record.Isolation)
	if res.Reason != store.StatusFinished {
		n.Problem = cmp.Or(line(res.Record.Reason), fmt.Sprintf("git ended with exit code %d", res.Exit))
	}
	switch at := res.Record.EndedAt; {
	case at.IsZero(): // no node has written that
		n.Problem = cmp.Or(n.Problem, "its result does not say when it ended")
	case at.Before(submitted):
		n.ClockOffset = at.Sub(submitted)
	case at.After(received):
		n.ClockOffset = at.Sub(received)
	}
}

// forget removes the job, what it left in the hub, and at last the record of the probe.
func (p *probe) forget(ctx context.Context) error {
	if err := p.forgetJob(ctx); err != nil {
		return err
	}
	return p.forgetRecord(ctx)
}

// forgetJob removes the job, and what it left in the hub. A node that begins without its job in the hub does nothing.
func (p *probe) forgetJob(ctx context.Context) error {
	hubErr := p.forgetHub(ctx)
	if !p.mayBeSubmitted {
		return hubErr
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
	if err == nil && hubErr == nil { // it may have pushed a result when it was told to end
		hubErr = p.forgetHub(ctx)
	}
	return errors.Join(err, hubErr)
}

// forgetHub removes the refs of the probe in the hub, unless they are those of another repository with the same id.
func (p *probe) forgetHub(ctx context.Context) error {
	if !p.mayBeInHub {
		return nil
	}
	refs, err := p.hub.Refs(ctx, p.ID)
	if err != nil {
		return err
	}
	if job := refs[hub.JobRef(p.ID)]; job != "" && job != p.JobCommit {
		return nil
	}
	return p.hub.Forget(ctx, p.ID)
}

// forgetRecord removes the record of the probe.
func (p *probe) forgetRecord(ctx context.Context) error {
	return p.c.withLock(ctx, func() error {
		return errors.Join(p.c.r.Store.RemoveProbe(p.c.r.ID, p.ID), p.c.r.Store.RemoveUnusedRepo(p.c.r.ID))
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
