package core

import (
	"path/filepath"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/mailbox"
	"github.com/git-agency/git-agency/gitagency/internal/procfs"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Run is what the record of an invocation says about the runs of an agent in it. Text of the agent is untrusted.
type Run struct {
	Task         string    `json:"task,omitempty"`          // first line of the task
	SessionID    string    `json:"session_id,omitempty"`    // the same over every resume
	RunStartedAt time.Time `json:"run_started_at,omitzero"` // start of the last run
	Runs         int       `json:"runs,omitempty"`          // number of runs so far
	PID          int       `json:"pid,omitempty"`           // process that supervises the run, while it runs

	PlatformState  string `json:"platform_state,omitempty"`  // submitting, queued or running: state of the job of a run on another platform, as long as its end is not known
	PlatformDetail string `json:"platform_detail,omitempty"` // what the engine says about such a job
	PlatformJob    string `json:"platform_job,omitempty"`    // id of the job of the last run at its engine
	PlatformNode   string `json:"platform_node,omitempty"`   // host of the last run; empty if that is not known
	Attempt        int    `json:"attempt,omitempty"`         // number of the attempt of the last run: an engine may begin a run again

	StatusReason string    `json:"status_reason,omitempty"` // why the run has its status, if it did not simply finish
	Warnings     []string  `json:"run_warnings,omitempty"`  // what a finished run should not hide, such as a denied tool
	LastMessage  string    `json:"last_message,omitempty"`  // last text of the agent
	CostUSD      float64   `json:"cost_usd,omitempty"`      // as far as the agent tells it
	Tokens       int64     `json:"tokens,omitempty"`        // as far as the agent tells them
	Question     string    `json:"question,omitempty"`      // unanswered question of the agent
	Options      []string  `json:"question_options,omitempty"`
	Context      string    `json:"question_context,omitempty"`
	AskedAt      time.Time `json:"asked_at,omitzero"`
}

// killedReason is the StatusReason of a run that was not recorded as ended by the process that supervised it.
const killedReason = "its end was not recorded: the process that supervised it was killed or could not write, as on a full disk, or the machine was restarted"

// newRun returns the runs in a record, and their status. A record says "running" as long as no process has corrected it,
// so that is checked here: a run whose process is gone has failed, unless its agent has asked a question, which is in the
// record or still in the mailbox.
func newRun(e *store.Entry[store.InvocationMeta]) (run Run, status string) {
	m := &e.Record
	run = Run{
		Task: m.Task, SessionID: m.SessionID, RunStartedAt: TimeOrZero(m.RunStartedAt), Runs: m.Runs, PID: m.PID, StatusReason: m.StatusReason,
		PlatformState: m.PlatformState, PlatformDetail: m.PlatformDetail, PlatformJob: m.PlatformJob, PlatformNode: m.PlatformNode, Attempt: m.Attempt,
		Warnings: m.Warnings, LastMessage: m.LastMessage, CostUSD: m.CostUSD, Tokens: m.Tokens,
	}
	if q := m.Question; q != nil {
		run.Question, run.Options, run.Context, run.AskedAt = q.Text, q.Options, q.Context, q.AskedAt
	}
	if status = m.Status; m.HasOpenJob() {
		return run, status // no process has to supervise it
	}
	if (m.PID != 0 || status == store.StatusRunning) && !procfs.IsAlive(m.PID, m.PIDStarted) {
		run.PID, run.StatusReason, status = 0, killedReason, store.StatusFailed
		if q, asked := mailbox.PeekQuestion(mailboxOf(e)); asked { // it had asked before
			run.Question, run.Options, run.Context, run.AskedAt = q.Question, q.Options, q.Context, TimeOrZero(m.RunStartedAt)
		}
		if run.Question != "" {
			status = store.StatusBlocked
		}
	}
	return run, status
}

// mailboxOf returns the mailbox of an invocation, as package sandbox does.
func mailboxOf(e *store.Entry[store.InvocationMeta]) string {
	if e.Record.Primitives.Isolation == settings.IsolationOS {
		return store.MailboxOf(e.TreePath)
	}
	return filepath.Join(e.TreePath, guard.AgencyDir)
}

// IsSupervised reports whether a run of the invocation goes on: supervised by a process, or on another platform.
func (i Invocation) IsSupervised() bool { return i.PID != 0 || i.HasOpenJob() }

// HasOpenJob reports whether a run of the invocation goes on that is on another platform, as far as is known here.
func (i Invocation) HasOpenJob() bool { return i.PlatformState != "" }

// AsksWhileRunning reports whether the agent of a run that goes on has asked a question.
func (i Invocation) AsksWhileRunning() bool {
	return i.IsSupervised() && i.Status == store.StatusRunning && i.Question != ""
}
