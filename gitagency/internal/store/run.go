package store

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"
)

// RunFields are the fields that runs of an agent write to the record of their invocation.
type RunFields struct {
	Task          string     `json:"task,omitempty"`              // first line of the task
	SessionID     string     `json:"session_id,omitempty"`        // UUID of the session, the same over every resume
	RunnerSession string     `json:"runner_session_id,omitempty"` // session id that the agent chose itself
	Command       []string   `json:"run_command,omitempty"`       // command line of a run without a runner
	RunTimeoutMS  int64      `json:"run_timeout_ms,omitempty"`    // limit of each run; negative for none, zero for agency.runTimeout
	CommitAll     bool       `json:"commit_all,omitempty"`        // commit what an agent leaves uncommitted
	Budget        Budget     `json:"budget,omitzero"`
	ResumeWith    string     `json:"resume_with,omitempty"`    // what the agent is to be given and was not given yet in a run that ended: ResumeWithAnswer, ResumeWithTask, or nothing
	RunStartedAt  *time.Time `json:"run_started_at,omitempty"` // start of the last run
	Runs          int        `json:"runs,omitempty"`           // number of runs so far

	PID        int    `json:"pid,omitempty"`         // process that supervises the run; only while it runs
	PIDStarted string `json:"pid_started,omitempty"` // start of that process, so that a reused id is recognised
	OnTerminal bool   `json:"on_terminal,omitempty"` // the agent of the last run had a terminal

	PlatformFields

	StatusReason string    `json:"status_reason,omitempty"` // why the run has its status, if it did not simply finish
	Warnings     []string  `json:"run_warnings,omitempty"`  // what a finished run should not hide, such as a denied tool
	LastMessage  string    `json:"last_message,omitempty"`  // last text of the agent
	CostUSD      float64   `json:"cost_usd,omitempty"`
	Tokens       int64     `json:"tokens,omitempty"`
	Question     *Question `json:"question,omitempty"` // unanswered question
}

// PlatformFields are the fields of runs on a platform other than this machine.
type PlatformFields struct {
	PlatformState  string `json:"platform_state,omitempty"`  // state of the job of a run that has not ended: one of the states of platforms; empty if there is none
	PlatformJob    string `json:"platform_job,omitempty"`    // id of the job of the last run at its engine; empty as long as that has not told it
	PlatformNode   string `json:"platform_node,omitempty"`   // host of the last run; empty if that is not known
	PlatformDetail string `json:"platform_detail,omitempty"` // what the engine says about a job that has not ended, such as why it waits
	Attempt        int    `json:"attempt,omitempty"`         // number of the attempt of the last run: an engine may begin a run again
	Hub            string `json:"hub,omitempty"`             // repository by which the last run came and goes; empty for the repository itself
	JobCommit      string `json:"job_commit,omitempty"`      // commit with what the last run was given
	ResultCommit   string `json:"result_commit,omitempty"`   // commit with the result that was imported last
	StopRequested  bool   `json:"stop_requested,omitempty"`  // the user has stopped the run, whose end is not known yet
	WasRun         bool   `json:"was_run,omitempty"`         // the program of the last run was started there, as far as its result is known
}

// HasOpenJob reports whether a run goes on that another machine executes, as far as is known here.
func (f PlatformFields) HasOpenJob() bool { return f.PlatformState != "" }

// States of the job of a run that has not ended.
const (
	PlatformSubmitting = "submitting" // a process on this machine submits it
	PlatformQueued     = "queued"
	PlatformRunning    = "running"
)

// Budget bounds what an agent may spend; zero means no limit.
type Budget struct {
	CostUSD float64 `json:"cost_usd,omitempty"` // of all runs
	Tokens  int64   `json:"tokens,omitempty"`   // of all runs
	Output  int64   `json:"output,omitempty"`   // bytes of each run
}

// IsInvalid reports whether a limit is negative.
func (b Budget) IsInvalid() bool { return b.CostUSD < 0 || b.Tokens < 0 || b.Output < 0 }

// Or returns the budget with the limits that it lacks taken from another one.
func (b Budget) Or(other Budget) Budget {
	return Budget{cmp.Or(b.CostUSD, other.CostUSD), cmp.Or(b.Tokens, other.Tokens), cmp.Or(b.Output, other.Output)}
}

// Question is a question of an agent to its user. All of it is untrusted text.
type Question struct {
	Text    string    `json:"question"`
	Options []string  `json:"options,omitempty"`
	Context string    `json:"context,omitempty"`
	AskedAt time.Time `json:"asked_at"`           // with milliseconds: an agent may ask the same again within a second
	ReplyTo string    `json:"reply_to,omitempty"` // id under which the agent waits for the answer in its mailbox; only while it runs and waits
}

// Equal reports whether two questions ask the same.
func (q Question) Equal(other Question) bool {
	return q.Text == other.Text && slices.Equal(q.Options, other.Options) && q.Context == other.Context
}

// IsSame reports whether two questions are one: the same text, asked at the same time.
func (q Question) IsSame(other Question) bool {
	return q.Equal(other) && q.AskedAt.Equal(other.AskedAt)
}

// Values of status.
const (
	StatusStarting = "starting"
	StatusRunning  = "running"
	StatusFinished = "finished"
	StatusFailed   = "failed"
	StatusBlocked  = "blocked"
	StatusStopped  = "stopped"
	StatusTimedOut = "timed_out"
)

// Values of mode.
const (
	ModeHeaded   = "headed" // the agent runs on a terminal
	ModeHeadless = "headless"
)

// Values of resume_with.
const (
	ResumeWithAnswer = "answer"
	ResumeWithTask   = "task"
)

// MailboxOf returns the mailbox of an invocation behind walls, given the path of its sandbox's tree.
func MailboxOf(tree string) string {
	dir := filepath.Dir(tree)
	return filepath.Join(filepath.Dir(filepath.Dir(dir)), "invocations", filepath.Base(dir), "mailbox")
}

// OutputPath returns the path of a file with output of an agent: "stdout", "stderr", or what a detached agent wrote to its
// "terminal".
func (s Store) OutputPath(repoID, invocationID, stream string) string {
	return filepath.Join(s.InvocationDir(repoID, invocationID), stream+".log")
}

// UpdateInvocationMetaIf is UpdateInvocationMeta for a change that may turn out not to be possible: if change returns
// false, nothing is written.
func (s Store) UpdateInvocationMetaIf(repoID, invocationID string, change func(*InvocationMeta) bool) error {
	return updateJSONIf(s.InvocationMetaPath(repoID, invocationID), change)
}
