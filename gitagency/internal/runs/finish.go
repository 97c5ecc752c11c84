package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/landing"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// finishTimeout bounds what is done after the end of an agent, also after an interrupt.
const finishTimeout = 10 * time.Minute

// finish decides how the run ended, takes a last snapshot and records both. It does so also when ctx has ended.
func (a *attempt) finish(ctx context.Context, end ending) (Result, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	summary := runner.Summary{}
	if a.stream != nil {
		summary = a.stream.summary()
	}
	res := Result{ID: a.sandbox.ID, Path: a.sandbox.Tree, ExitCode: end.exec.ExitCode, Exec: end.exec, LastMessage: quote.Shorten(summary.LastMessage, maxEventText)}
	a.decide(ctx, &res, end, summary)
	if end.logErr != nil {
		res.Warnings = append(res.Warnings, "its output could not be kept: "+end.logErr.Error())
	}
	if end.ran() {
		if err := a.takeSnapshot(ctx); err != nil {
			res.Warnings = append(res.Warnings, "no snapshot could be taken at its end: "+err.Error())
		}
	}
	if a.req.Side != nil {
		return res, a.recordSideEnd(res, summary)
	}
	return res, a.recordEnd(res, end, summary)
}

// ran reports whether the program was started.
func (e ending) ran() bool {
	return e.exec.ContainedBy != "" && !fault.Is[*fault.CannotRunError](e.err)
}

// setupTimedOut reports whether agency.setup used up the time of the run.
func (e ending) setupTimedOut() bool {
	var setup *fault.SetupCommandError
	return errors.As(e.err, &setup) && setup.TimedOut
}

// decide sets the status of a run, with the reason. A user who stops it comes first, then a question, then how the program
// and the agent's own stream ended, and then what is left in the sandbox.
func (a *attempt) decide(ctx context.Context, res *Result, end ending, summary runner.Summary) {
	question := a.lastQuestion(res)
	if res.question = question; question != nil {
		res.Question, res.QuestionOptions = question.Text, question.Options
	}
	switch {
	case errors.Is(end.err, fault.ErrStopped) || end.interrupted:
		res.Status, res.Reason, res.ExitCode = store.StatusStopped, StoppedReason, ExitStopped
		return
	case end.setupTimedOut():
		res.timeOut(end.limit)
		return
	case !end.ran():
		res.fail(notRunReason(end.err))
		if res.SetupFailed = fault.Is[*fault.SetupCommandError](end.err); res.SetupFailed || fault.Is[*fault.SetupError](end.err) {
			res.ExitCode = ExitSetup
		}
		return
	case question != nil:
		res.Status, res.Reason, res.ExitCode = store.StatusBlocked, askReason, ExitBlocked
		return
	case end.exceeded != nil:
		res.ExitCode, res.Exceeded = ExitFailed, end.exceeded.option
		res.fail(end.exceeded.Error())
		return
	case end.exec.TimedOut:
		res.timeOut(end.limit)
		return
	case end.err != nil:
		res.fail(end.err.Error())
	case end.exec.Signal != "":
		res.fail("it was killed by " + end.exec.Signal)
	case end.exec.ExitCode != 0:
		res.fail(fmt.Sprintf("it exited with %d", end.exec.ExitCode))
	case summary.Err != "":
		res.fail(quote.Shorten(summary.Err, maxEventText))
	case a.stream != nil && !summary.Complete:
		res.fail("its output ended without a result")
	}
	if summary.Err != "" && !strings.Contains(res.Reason, summary.Err) {
		res.Reason += ": " + quote.Shorten(summary.Err, maxEventText)
	}
	if len(summary.Denied) > 0 {
		tools := slices.Compact(slices.Sorted(slices.Values(summary.Denied)))
		res.Warnings = append(res.Warnings, "it was not permitted to use "+quote.Shorten(strings.Join(tools, ", "), 500))
	}
	if res.Status == "" {
		a.inspectWork(ctx, res)
	}
}

// timeOut sets the status of a run that took too long.
func (res *Result) timeOut(limit time.Duration) {
	res.Status, res.Reason, res.ExitCode = store.StatusTimedOut, "it took longer than "+limit.String(), ExitTimedOut
}

// fail sets the status failed, and an exit code that says so.
func (res *Result) fail(reason string) {
	res.Status, res.Reason = store.StatusFailed, reason
	if res.ExitCode == 0 {
		res.ExitCode = ExitFailed
	}
}

// notRunReason says why the program of a run was not run.
func notRunReason(err error) string {
	if err == nil {
		return "it could not be run"
	}
	var setup *fault.SetupError
	if errors.As(err, &setup) {
		return "its sandbox could not be set up: " + setup.Err.Error()
	}
	if fault.Is[*fault.SetupCommandError](err) {
		return err.Error()
	}
	return "it could not be run: " + err.Error()
}

// inspectWork sets the status of a run that succeeded by what it left: uncommitted files make it fail, unless they are to be
// committed, or the sandbox started with them.
func (a *attempt) inspectWork(ctx context.Context, res *Result) {
	work, err := landing.InspectWork(ctx, a.repo, a.sandbox.ID)
	if err == nil && len(work.Uncommitted) > 0 && work.Operation == "" && a.record.CommitAll {
		if err = a.commitAll(ctx, work.Uncommitted); err == nil {
			work, err = landing.InspectWork(ctx, a.repo, a.sandbox.ID)
		}
	}
	left := slices.DeleteFunc(slices.Clone(work.Uncommitted), func(path string) bool { return slices.Contains(work.FromStart, path) })
	switch {
	case err != nil:
		res.fail("its work cannot be inspected: " + err.Error())
	case work.Operation != "":
		res.fail("it left a " + work.Operation + " in progress")
		res.Uncommitted = work.Uncommitted
	case len(left) > 0:
		res.fail(fmt.Sprintf("it left uncommitted changes (files: %d)", len(left)))
		res.ExitCode, res.Uncommitted = ExitFailed, left
	default:
		res.Status = store.StatusFinished
		if !work.Committed {
			res.Warnings = append(res.Warnings, "it committed nothing")
		}
		if n := len(work.FromStart); n > 0 {
			res.Warnings = append(res.Warnings, fmt.Sprintf("its sandbox still has uncommitted changes that it started with (files: %d)", n))
		}
	}
}

// commitAll commits files in the sandbox behind its walls, as the agent would: its hooks and its identity count.
func (a *attempt) commitAll(ctx context.Context, files []string) error {
	message := a.record.Task
	if message == "" {
		message = "Work of invocation " + a.sandbox.ID
	}
	for _, step := range []struct {
		argv  []string
		input string
	}{
		{[]string{"git", "add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul"}, strings.Join(literalPathspecs(files), "\x00")},
		{[]string{"git", "commit", "--quiet", "--file=-"}, message + "\n"},
	} {
		result, err := a.sandbox.Exec(ctx, sandbox.ExecOptions{Argv: step.argv, Stdin: strings.NewReader(step.input), Env: a.identity()})
		if fault.Is[*fault.CannotRunError](err) && a.record.Primitives.HasOtherRoot() { // that of the machine would run what the agent has configured
			return fmt.Errorf("its software has no git, with which --commit-all commits; 'git agency land --commit-all -m <message> %s' needs none", a.sandbox.ID)
		}
		if err != nil {
			return err
		}
		if result.ExitCode != 0 {
			return fmt.Errorf("%s exited with %d: %s", strings.Join(step.argv[:2], " "), result.ExitCode, quote.Shorten(strings.TrimSpace(result.Stderr), 1000))
		}
	}
	return nil
}

// literalPathspecs returns pathspecs that match exactly these paths.
func literalPathspecs(paths []string) []string {
	specs := make([]string, len(paths))
	for i, path := range paths {
		specs[i] = ":(top,literal)" + path
	}
	return specs
}

// recordEnd writes the status to the record and the history.
func (a *attempt) recordEnd(res Result, end ending, summary runner.Summary) error {
	now := a.repo.Now()
	err := a.repo.Store.UpdateInvocationMeta(a.repo.ID, a.sandbox.ID, func(m *store.InvocationMeta) {
		m.Status, m.StatusReason, m.Warnings, m.LastMessage, m.Question = res.Status, res.Reason, res.Warnings, res.LastMessage, res.question
		m.PID, m.PIDStarted = 0, ""
		if end.ran() {
			m.ResumeWith = "" // the agent was given it
		} else if !m.HasEnded() {
			m.ExitCode = json.Number(strconv.Itoa(res.ExitCode)) // not that of agency.setup
		}
		addSpent(m, summary)
		if !m.HasEnded() {
			m.FinishedAt = &now
		}
	})
	a.appendEndEvent(res)
	return err
}

// addSpent adds what the agent spent to a record, and the session that it told.
func addSpent(m *store.InvocationMeta, summary runner.Summary) {
	if summary.OfSession {
		m.CostUSD, m.Tokens = summary.CostUSD, summary.Tokens
	} else {
		m.CostUSD, m.Tokens = m.CostUSD+summary.CostUSD, m.Tokens+summary.Tokens
	}
	if summary.Session != "" {
		m.RunnerSession = summary.Session
	}
}

// appendEndEvent adds the end of the run to the history.
func (a *attempt) appendEndEvent(res Result) {
	a.repo.AppendEvent(a.sandbox.ID, statusEvent{
		Time: a.repo.EventTime(), Event: res.Status, Reason: res.Reason, ExitCode: &res.ExitCode, Warnings: res.Warnings, Question: quote.Shorten(res.Question, maxEventText),
		Options: res.QuestionOptions,
	})
}

// takeSnapshot takes a snapshot, unless nothing has changed.
func (a *attempt) takeSnapshot(ctx context.Context) error {
	taken, err := a.sandbox.TakeSnapshot(ctx, snapshots.TakeRequest{})
	a.changed = a.changed || taken.Created
	return err
}

// snapshotPeriodically takes snapshots while the agent works, whenever something has changed, and looks for conflicts with
// other sandboxes after each. The returned function ends it.
func (a *attempt) snapshotPeriodically(ctx context.Context) (stop func()) {
	every, err := a.repo.Settings.SnapshotEvery()
	if err != nil {
		a.repo.Warn("no snapshots are taken while it runs: %v", err)
		return func() {}
	}
	if every <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := proc.Async(func() (struct{}, error) {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return struct{}{}, nil
			case <-ticker.C:
			}
			if err := a.takeSnapshot(ctx); err != nil && ctx.Err() == nil {
				a.repo.Warn("sandbox %s: no snapshot while it runs: %v", a.sandbox.ID, err)
			}
			a.findConflicts(ctx)
		}
	})
	return func() {
		cancel()
		_, _ = done()
	}
}
