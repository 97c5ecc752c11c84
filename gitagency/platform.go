package gitagency

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/platform"
	"github.com/git-agency/git-agency/gitagency/internal/platform/engine"
	"github.com/git-agency/git-agency/gitagency/internal/platform/node"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// PlatformLocal is the platform of runs on this machine.
const PlatformLocal = store.PlatformLocal

// RunsOnPlatform reports whether the runs of an invocation are executed by another machine.
func (i Invocation) RunsOnPlatform() bool {
	return !store.Primitives(i.Primitives).IsLocal()
}

// HasOpenJob reports whether a run goes on that another machine executes, as far as is known here.
func (r Run) HasOpenJob() bool { return r.PlatformState != "" }

// IsRunning reports whether a run goes on: supervised by a process of this machine, or executed by another machine.
func (r Run) IsRunning() bool { return r.PID != 0 || r.HasOpenJob() }

// SubmitRun submits a run that another machine is to execute, and returns. ExecuteRun does so too, and waits for its end.
func (r *Repository) SubmitRun(ctx context.Context, id string) error {
	return publicError(r.platforms.Submit(ctx, id))
}

// refreshJobs brings the records of runs up to date that other machines execute. What cannot be found out is a warning.
func refreshJobs(r *core.Repository, ids []string) {
	if _, err := platform.New(r).Refresh(context.Background(), ids...); err != nil {
		r.Warn("what is known of runs on other machines may be old: %v", err)
	}
}

// refreshAllJobs brings all invocations up to date, for a caller that goes on to list them.
func (r *Repository) refreshAllJobs() {
	if all, err := r.core.Invocations(core.ListRequest{}); err == nil { // else the caller reports it
		r.core.RefreshJobs(all...)
	}
}

// runsOnPlatform reports whether another machine executes the runs of an invocation.
func (r *Repository) runsOnPlatform(id string) bool {
	return !r.core.Store.Invocation(r.ID, id, nil).Record.Primitives.IsLocal()
}

// hasOpenJob reports whether a run of an invocation goes on that another machine executes.
func (r *Repository) hasOpenJob(id string) bool {
	return r.core.Store.Invocation(r.ID, id, nil).Record.HasOpenJob()
}

// stopJob stops the run of an invocation that is about to be discarded, if another machine executes it. With force, what the run left
// there is given up if it cannot be had.
func (r *Repository) stopJob(ctx context.Context, query string, force bool) (stopped bool, err error) {
	i, err := r.core.Invocation(query)
	if err != nil || !i.HasOpenJob() {
		return false, nil // what is to be discarded reports the error
	}
	if _, _, err = r.platforms.Stop(ctx, i.ID); err == nil || !force || ctx.Err() != nil {
		return err == nil, err
	}
	r.core.Warn("the result of %s is given up, and its job may go on: %v", i.ID, err)
	return false, r.platforms.GiveUp(ctx, i.ID)
}

// copyJobOutput returns the function by which logs and attach read the output of a run that another machine executes.
func (r *Repository) copyJobOutput(ctx context.Context, query string) func(follow bool, stdout, stderr io.Writer) error {
	return func(follow bool, stdout, stderr io.Writer) error {
		i, err := r.core.Invocation(query)
		if err != nil {
			return err
		}
		return r.platforms.CopyOutput(ctx, i.ID, follow, stdout, stderr)
	}
}

// NodeReport is what a node of a platform told about itself.
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

// ProbeNode has a node of a platform execute git behind the walls that runs have there by default, waits for it up to a limit, and
// returns what the node told. Afterwards the job, the sandbox and the refs are removed; the repository of the node stays. Once force,
// which may be nil, is closed, it does not wait for their removal. A report that is not empty is valid also if there is an error.
func (r *Repository) ProbeNode(ctx context.Context, name string, limit time.Duration, force <-chan struct{}) (NodeReport, error) {
	prims, err := r.core.Settings.ChoosePrimitives(store.Primitives{Platform: name}, "")
	if err != nil {
		return NodeReport{}, publicError(err)
	}
	report, err := r.platforms.ProbeNode(ctx, prims, limit, force)
	return NodeReport(report), publicError(err)
}

// JobRequest names the job that a node is to execute.
type JobRequest struct {
	Hub          string // path or URL of the hub
	ID           string // id of the invocation
	Job          string // commit of the job
	Dir          string // directory for repositories and sandboxes; empty: in the user's cache directory
	ExclusiveDir bool   // use a directory below Dir that no other process has locked, since process ids mean nothing in other containers
	Environment  string // file with the variables that the agent needs, if the node can read it; empty for none

	Options        Options         // Dir is not used
	Force          <-chan struct{} // as in ExecuteRunRequest
	Stdout, Stderr io.Writer       // receive what the agent writes
}

// ExecuteJob executes a job on the machine that an engine has chosen, pushes its result to the hub, and returns the exit code of the
// run; 0 if the run has a result of another attempt. An error means that it has no result.
func ExecuteJob(ctx context.Context, req JobRequest) (exit int, err error) {
	opts, err := req.Options.internal().WithDefaults()
	if err != nil {
		return 0, publicError(err)
	}
	request := node.Request{
		Hub: req.Hub, ID: req.ID, Job: req.Job, Dir: req.Dir, ExclusiveDir: req.ExclusiveDir, Environment: req.Environment, Options: opts, Force: req.Force,
		Stdout: req.Stdout, Stderr: req.Stderr,
	}
	env := opts.Env
	if env == nil {
		env = os.Environ()
	}
	request.Node, request.Attempt = engine.Self(env)
	exit, err = node.Run(ctx, request)
	return exit, publicError(err)
}
