package platform

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/handoff"
	"github.com/git-agency/git-agency/gitagency/internal/platform/engine"
	"github.com/git-agency/git-agency/gitagency/internal/platform/hub"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/runs"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// errOtherRun reports a result that is not that of the last run.
var errOtherRun = errors.New("it is the result of another run")

// importResult imports a result: its objects, as a snapshot, and then its state into the sandbox. Each step does nothing where a
// process that was killed has done it.
func (c *Client) importResult(ctx context.Context, h *hub.Hub, m store.InvocationMeta, commit string) (runs.JobEnd, error) {
	id := m.InvocationID
	number, err := c.receive(ctx, h, m, commit)
	if err != nil {
		return runs.JobEnd{}, err
	}
	res, output, err := readResult(ctx, c.r.Git, m, commit)
	if err != nil {
		return runs.JobEnd{}, err
	}
	if err := sandbox.Of(c.r, id).RollbackToResult(ctx, snapshots.Snapshot{Invocation: id, Number: number}.Name()); err != nil {
		return runs.JobEnd{}, err
	}
	return newEnd(res, output), nil
}

// receive brings the objects of a result into the repository and keeps them as a snapshot of the sandbox, whose number it returns.
func (c *Client) receive(ctx context.Context, h *hub.Hub, m store.InvocationMeta, commit string) (number int, err error) {
	id := m.InvocationID
	taken, err := snapshots.List(ctx, c.r.Git, id)
	if err != nil {
		return 0, err
	}
	for _, s := range taken {
		if s.ID == commit {
			return s.Number, nil
		}
	}
	return number, h.Receive(ctx, id, commit, m.BaseCommit, c.r.LockAndRecover, func(repo *git.Repo) error {
		if _, _, err := readResult(ctx, repo, m, commit); err != nil {
			return err
		}
		if err := sandbox.Of(c.r, id).CheckResult(ctx, repo, commit); err != nil {
			return err
		}
		taken, err := snapshots.List(ctx, repo, id)
		if err != nil {
			return err
		}
		number = 1
		if len(taken) > 0 {
			number = taken[len(taken)-1].Number + 1
		}
		tx := c.r.BeginTx("import")
		if err := snapshots.Keep(ctx, tx, repo, snapshots.Snapshot{ID: commit, Ref: core.SnapshotRef(id, number)}); err != nil {
			core.RollbackTx(ctx, tx)
			return err
		}
		tx.Commit()
		return nil
	})
}

// readResult reads the result of the last run of an invocation, and its output.
func readResult(ctx context.Context, repo *git.Repo, m store.InvocationMeta, commit string) (hub.Result, map[string][]byte, error) {
	res, err := hub.ReadResult(ctx, repo, commit, m.InvocationID)
	if err != nil {
		return res, nil, &invalidResultError{err}
	}
	if res.Number != m.Runs {
		return res, nil, errOtherRun
	}
	output, err := res.ReadOutput(ctx, repo)
	if err != nil {
		err = &invalidResultError{err}
	}
	return res, output, err
}

// invalidResultError reports a result that does not have the form of one.
type invalidResultError struct{ err error }

func (e *invalidResultError) Error() string { return e.err.Error() }
func (e *invalidResultError) Unwrap() error { return e.err }

// isRefusal reports whether the content of a result is the reason of an error, so that no other attempt to import it can succeed.
func isRefusal(r *core.Repository, err error) bool {
	var failed *git.Error
	if errors.As(err, &failed) && failed.ExitCode == 128 && (failed.Args[0] == "index-pack" || failed.Args[0] == "pack-objects") && handoff.HasRoom(r) {
		return true
	}
	return fault.Is[*invalidResultError](err) || fault.Is[*fault.InvalidTreeError](err) || fault.Is[*fault.InvalidCommitError](err) ||
		fault.Is[*object.IncompleteError](err) || fault.Is[*object.TooLargeError](err) || fault.Is[*readlimit.ExceededError](err)
}

// containedByJob is the containment of the processes of a run that another machine has executed.
const containedByJob = "job"

// Limits of untrusted texts in records.
const (
	maxText     = 4 << 10
	maxQuestion = 64 << 10
	maxWarnings = 50
)

// newEnd returns the end of a run by its result.
func newEnd(res hub.Result, output map[string][]byte) runs.JobEnd {
	rec := res.Record
	end := runs.JobEnd{
		Result: runs.Result{
			Status: res.Reason, Reason: quote.Shorten(rec.Reason, maxText), ExitCode: res.Exit, LastMessage: quote.Shorten(rec.LastMessage, maxText),
			Exceeded: quote.Shorten(rec.Exceeded, 100), SetupFailed: rec.SetupFailed, Uncommitted: rec.Uncommitted,
		},
		WasRun: rec.WasRun, Stdout: output[hub.StdoutFile], Stderr: output[hub.StderrFile], Setup: output[hub.SetupFile],
		Spent: runner.Summary{CostUSD: max(0, rec.CostUSD), Tokens: max(0, rec.Tokens), OfSession: true, Session: quote.Shorten(rec.RunnerSession, 200)},
	}
	if end.WasRun {
		end.Exec.ContainedBy = containedByJob
		end.Exec.ExitCode = res.Exit
	}
	for _, warning := range rec.Warnings[:min(len(rec.Warnings), maxWarnings)] {
		end.Warnings = append(end.Warnings, quote.Shorten(warning, maxText))
	}
	if q := rec.Question; q != nil && res.Reason == store.StatusBlocked {
		end.Question = &store.Question{Text: quote.Shorten(q.Text, maxQuestion), Context: quote.Shorten(q.Context, maxQuestion), AskedAt: q.AskedAt}
		for _, option := range q.Options[:min(len(q.Options), maxWarnings)] {
			end.Question.Options = append(end.Question.Options, quote.Shorten(option, maxText))
		}
		end.Result.Question, end.QuestionOptions = end.Question.Text, end.Question.Options
	}
	end.Change = func(m *store.InvocationMeta) {
		m.PlatformNode, m.Attempt, m.ResultCommit = res.Node, res.Attempt, res.Commit
		if m.SetupAt == nil {
			m.SetupAt = rec.SetupAt
		}
		if rec.Submitted && m.Landing == "" {
			now := rec.EndedAt
			m.Landing, m.SubmittedAt, m.ReviewNote = store.Review, &now, quote.Shorten(rec.ReviewNote, maxText)
		}
	}
	return end
}

// lastStderrLine returns the last line that a job wrote on standard error, for a message; empty if there is none.
func (c *Client) lastStderrLine(ctx context.Context, platform string, job engine.Ref) string {
	driver, _, err := openEngine(c.r, platform)
	if err != nil {
		return ""
	}
	const most = 30 * time.Second // an engine may hang, and a command waits
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var text bytes.Buffer
	if _, err := driver.Logs(ctx, job, engine.LogsRequest{Stream: engine.Stderr}, &lastBytes{to: &text}); err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	last := quote.Printable(lines[len(lines)-1])
	if last == "" {
		return ""
	}
	return ": " + quote.Shorten(last, 300)
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct{ to *bytes.Buffer }

func (t *lastBytes) Write(p []byte) (int, error) {
	const most = 4 << 10
	t.to.Write(p)
	if n := t.to.Len(); n > most {
		t.to.Next(n - most)
	}
	return len(p), nil
}
