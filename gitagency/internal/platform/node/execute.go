package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/platform/hub"
	"github.com/git-agency/git-agency/gitagency/internal/preflight"
	"github.com/git-agency/git-agency/gitagency/internal/procfs"
	"github.com/git-agency/git-agency/gitagency/internal/runs"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// execute runs the agent in a new sandbox, and returns the result. A failure is a result, too, so that the user learns of it.
func (w *work) execute(ctx context.Context, job hub.Job) hub.Draft {
	draft := w.newDraft(job)
	res, err := w.run(ctx, job)
	if err != nil {
		draft.Record.Reason = "it could not be run on " + w.req.Node + ": " + err.Error()
		if fault.Is[*preflight.FailedError](err) {
			draft.Exit = runs.ExitPreflight
		}
		if isToldToEnd(ctx) {
			draft.Reason, draft.Record.Reason, draft.Exit = store.StatusStopped, "it was stopped before it began", runs.ExitStopped
		}
		draft.Record.Status = draft.Reason
	} else {
		fillResult(&draft, res)
		if res.Status == store.StatusFailed && isToldToEnd(ctx) {
			draft.Reason, draft.Exit = store.StatusStopped, runs.ExitStopped
			draft.Record.Status, draft.Record.Reason = draft.Reason, runs.StoppedReason
		}
	}
	draft.Record.EndedAt = w.repo.Now()
	w.mu.Lock()
	draft.Record.Warnings = append(draft.Record.Warnings, w.warnings...)
	w.mu.Unlock()
	if w.sandboxID != "" {
		w.fillFromSandbox(context.WithoutCancel(ctx), &draft)
	}
	return draft
}

// isToldToEnd reports whether the engine ends the job, once the run has failed. An engine signals all processes of a job, and the
// agent may be gone before this process has handled the signal of its own. Its failure would be a final result, which a later
// attempt could not replace.
func isToldToEnd(ctx context.Context) bool {
	const signalDelay = 500 * time.Millisecond // between the signals, on a busy machine
	select {
	case <-ctx.Done():
		return true
	case <-time.After(signalDelay):
		return false
	}
}

// fillResult adds how the run ended.
func fillResult(draft *hub.Draft, res runs.Result) {
	draft.Exit, draft.Reason = res.ExitCode, res.Status
	rec := &draft.Record
	rec.Status, rec.Reason, rec.Warnings, rec.Uncommitted, rec.LastMessage = res.Status, res.Reason, res.Warnings, res.Uncommitted, res.LastMessage
	rec.Exceeded, rec.SetupFailed, rec.WasRun = res.Exceeded, res.SetupFailed, res.Exec.ContainedBy != ""
}

// fillFromSandbox adds what the record of the sandbox says, its last snapshot and the output of the run.
func (w *work) fillFromSandbox(ctx context.Context, draft *hub.Draft) {
	r, rec := w.repo, &draft.Record
	m := w.recordOf(w.sandboxID)
	rec.Question, rec.CostUSD, rec.Tokens, rec.RunnerSession, rec.SetupAt = m.Question, m.CostUSD, m.Tokens, m.RunnerSession, m.SetupAt
	rec.Submitted, rec.ReviewNote = m.Landing == store.Review, m.ReviewNote
	if m.RunStartedAt != nil {
		rec.BeganAt = *m.RunStartedAt
	}
	draft.Branch = core.SandboxRef(w.sandboxID)
	last, err := sandbox.Of(r, w.sandboxID).TakeSnapshot(ctx, snapshots.TakeRequest{})
	switch {
	case err != nil:
		w.keepsMore = true
		rec.Warnings = append(rec.Warnings, fmt.Sprintf("no snapshot could be taken on %s, so uncommitted work is missing here: %v; it is kept there, in %s", w.req.Node, err, w.dataDir()))
	case len(last.LeftOut) > 0:
		w.keepsMore = true
		paths := make([]string, len(last.LeftOut))
		for i, left := range last.LeftOut {
			paths[i] = left.Path
		}
		rec.Warnings = append(rec.Warnings, fmt.Sprintf("these are in no snapshot, and kept on %s, in %s: %s", w.req.Node, w.dataDir(), quote.Shorten(strings.Join(paths, ", "), 1000)))
	}
	taken, err := snapshots.List(ctx, r.Git, w.sandboxID)
	if err != nil {
		rec.Warnings = append(rec.Warnings, "its snapshots could not be listed: "+err.Error())
	}
	if len(taken) > 0 {
		draft.State = taken[len(taken)-1].ID
	}
	for name, path := range map[string]string{
		hub.StdoutFile: r.Store.OutputPath(r.ID, w.sandboxID, "stdout"),
		hub.StderrFile: r.Store.OutputPath(r.ID, w.sandboxID, "stderr"),
		hub.SetupFile:  r.Store.SetupLogPath(r.ID, w.sandboxID),
	} {
		text, err := readLog(path, hub.MaxOutput)
		if err != nil {
			rec.Warnings = append(rec.Warnings, "its output could not be read: "+err.Error())
		}
		if text != nil {
			draft.Output[name] = text
		}
	}
}

// collectWarning keeps a warning for the user. Standard error is that of the agent.
func (w *work) collectWarning(message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.warnings, message) {
		w.warnings = append(w.warnings, message)
	}
}

// run makes the sandbox and executes the run in it.
func (w *work) run(ctx context.Context, job hub.Job) (runs.Result, error) {
	env, err := w.environment(job)
	if err != nil {
		return runs.Result{}, err
	}
	if w.agentRepo, err = w.openRepository(ctx, env); err != nil {
		return runs.Result{}, err
	}
	w.agentRepo = w.agentRepo.WithWarn(w.collectWarning)
	start, err := w.startRequest(ctx, job)
	if err != nil {
		return runs.Result{}, err
	}
	report, err := preflight.Run(ctx, w.agentRepo, preflight.Request{Start: start, Argv: job.Run.Command, Headless: true})
	if err == nil {
		err = report.Err()
	}
	if err != nil {
		return runs.Result{}, err
	}
	inv, err := creation.Start(ctx, w.agentRepo, start)
	if err != nil {
		return runs.Result{}, err
	}
	w.sandboxID = inv.ID
	if !job.Changed { // what an earlier run left uncommitted is not what the sandbox was started with
		err = w.repo.Store.UpdateInvocationMeta(w.repo.ID, inv.ID, func(m *store.InvocationMeta) { m.FromSnapshot = "" })
	}
	if err != nil {
		return runs.Result{}, err
	}
	if job.Answer != nil {
		if err := durable.WriteFile(w.repo.Store.AnswerPath(w.repo.ID, inv.ID), job.Answer, 0o600); err != nil {
			return runs.Result{}, err
		}
	}
	return runs.Execute(ctx, w.agentRepo, runs.ExecuteRequest{
		ID: inv.ID, Stdout: &firstBytes{to: w.req.Stdout}, Stderr: &firstBytes{to: w.req.Stderr}, Force: w.req.Force,
		Later: func(func()) {}, // the machine of the user notifies
	})
}

// environment returns the environment of the run: that of this process, the variables that the agent needs, and the settings of
// the job as those of a command line.
func (w *work) environment(job hub.Job) ([]string, error) {
	variables, err := readEnvironment(w.req.Environment)
	if err != nil {
		return nil, err
	}
	env := append(git.WithoutRepoVariables(w.req.Options.Env), variables...)
	env = append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(len(job.Settings)))
	for i, s := range job.Settings {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, s.Key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, s.Value))
	}
	return env, nil
}

// startRequest returns the request for the sandbox of a job. It takes the id of the invocation, unless another attempt at the run
// is on this machine.
func (w *work) startRequest(ctx context.Context, job hub.Job) (creation.Request, error) {
	prims := job.Primitives
	prims.Platform, prims.Changeset = settings.PlatformLocal, settings.ChangesetAuto
	run := job.Run
	run.PlatformFields = store.PlatformFields{}
	run.Runs, run.RunTimeoutMS = job.Number-1, job.TimeoutMS
	run.PID, run.PIDStarted = os.Getpid(), procfs.Identity(os.Getpid()) // no other process may take it for abandoned
	req := creation.Request{
		Worktree: worktreeName, PreferredID: job.Invocation, QuietAuto: true, Name: job.Name, Runner: job.Runner, Mode: job.Mode, Primitives: prims,
		Limits: sandbox.LimitsFromRecord(job.Limits), Run: run, Task: job.Task, From: job.Base,
	}
	if job.State == "" {
		return req, nil
	}
	ref := core.SnapshotsPrefix(job.Invocation) + "1"
	at, err := w.repo.Git.Tip(ctx, ref)
	switch {
	case err != nil:
		return req, err
	case at == "":
		err = w.repo.Git.CreateRef(ctx, ref, job.State, "agency: node")
	case at != job.State:
		err = w.repo.Git.MoveRef(ctx, ref, job.State, at, "agency: node")
	}
	req.From, req.FromSnapshot = "", strings.TrimPrefix(ref, core.AllSnapshotsPrefix)
	if err != nil {
		err = errors.Join(errors.New("the state to start from cannot be kept"), err)
	}
	return req, err
}
