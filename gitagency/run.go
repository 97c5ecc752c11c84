package gitagency

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/runs"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// MaxTask is the largest size of a task, in bytes.
const MaxTask = runs.MaxTask

// RunRequest describes a run: an agent at work in a sandbox of its own.
type RunRequest struct {
	Start       StartRequest  // the sandbox; its Runner is the agent
	Argv        []string      // command line to run instead of an agent
	Task        []byte        // nil: none
	Interactive bool          // run the agent's own program on a terminal
	Timeout     time.Duration // zero: agency.runTimeout, else DefaultRunTimeout; negative: none
	CommitAll   bool          // commit what the agent leaves uncommitted
	Budget      Budget        // what the agent may spend
}

// Budget bounds what an agent may spend; zero means no limit.
type Budget struct {
	CostUSD float64 // of all runs, as far as the agent tells it
	Tokens  int64   // of all runs, as far as the agent tells them
	Output  int64   // bytes of each run
}

func (req RunRequest) internal() runs.Request {
	return runs.Request{
		Start: req.Start.internal(), Argv: req.Argv, Task: req.Task, Interactive: req.Interactive, Timeout: req.Timeout, CommitAll: req.CommitAll,
		Budget: store.Budget(req.Budget),
	}
}

// CreateRuns makes the sandboxes of runs and records their tasks. ExecuteRun then runs each agent. If a preflight check of
// one of them fails, the error is a *PreflightError and nothing is created. The invocations that are returned with an error
// were created.
func (r *Repository) CreateRuns(ctx context.Context, reqs []RunRequest) ([]Invocation, error) {
	created, err := runs.Create(ctx, r.core, convertAll(reqs, RunRequest.internal))
	return convertAll(created, newInvocation), publicError(err)
}

// RunEvent is one event that the stream of an agent tells, or a conflict with another sandbox. Its text is untrusted.
type RunEvent struct {
	Kind string // "message", "tool", "tool-error", "denied", "error", "usage" or "conflict"
	Text string
	Tool string
}

// ExecuteRunRequest says which run to execute, and connects it with its caller.
type ExecuteRunRequest struct {
	ID string // required: full id of the invocation

	// Stdout and Stderr receive what the agent writes, besides the logs; nil: only the logs do.
	Stdout, Stderr io.Writer

	// Terminal connects an interactive agent with the terminal of the caller: Stdin, Stdout and Stderr.
	Terminal bool
	Stdin    io.Reader

	// Detached says that no user waits for this process. It keeps a terminal for an interactive agent, which AttachRun
	// connects with that of a user, and its warnings in the history.
	Detached bool

	Force   <-chan struct{} // once closed, ends a grace period that has begun; may be nil
	OnBegin func()          // called once this process has taken the run over; may be nil
	OnEvent func(RunEvent)  // called with what the stream of the agent tells, and with conflicts to notify of; may be nil

	// Later receives the last step, which notifies the user and takes up to 5 seconds. A caller that reports the end of the
	// run calls it afterwards. Nil: ExecuteRun does it before it returns.
	Later func(lastStep func())

	// OnQuestion is called with a question for whose answer the agent waits while it runs; may be nil. The texts are
	// untrusted.
	OnQuestion func(question string, options []string)
}

func (req ExecuteRunRequest) internal() runs.ExecuteRequest {
	return runs.ExecuteRequest{
		ID: req.ID, Stdout: req.Stdout, Stderr: req.Stderr, Terminal: req.Terminal, Stdin: req.Stdin, Detached: req.Detached, Force: req.Force,
		OnBegin: req.OnBegin, OnEvent: internalOnEvent(req.OnEvent), OnQuestion: req.OnQuestion, Later: req.Later,
	}
}

func internalOnEvent(each func(RunEvent)) func(runner.Event) {
	if each == nil {
		return nil
	}
	return func(e runner.Event) { each(RunEvent(e)) }
}

// RunResult says how a run ended.
type RunResult struct {
	ID              string   `json:"invocation_id"`
	Path            string   `json:"sandbox_path"`
	Status          string   `json:"status"`
	Reason          string   `json:"status_reason"` // why it has this status; empty if it simply finished
	ExitCode        int      `json:"exit_code"`     // exit code of the run: that of the agent, unless Status says otherwise
	Uncommitted     []string `json:"uncommitted"`   // files that the agent left uncommitted; empty, not null
	Warnings        []string `json:"run_warnings"`  // what a finished run should not hide; empty, not null
	Question        string   `json:"question"`      // question that the agent asks; empty for none
	QuestionOptions []string `json:"question_options"`
	LastMessage     string   `json:"last_message"` // last text of the agent; empty if it has no stream that tells it

	Exec        ExecResult `json:"-"` // how its program ended
	Exceeded    string     `json:"-"` // option of run whose limit the agent exceeded, such as --max-cost; empty for none
	SetupFailed bool       `json:"-"` // agency.setup failed, and the program was not started
}

func newRunResult(res runs.Result) RunResult {
	return RunResult{
		ID: res.ID, Path: res.Path, Status: res.Status, Reason: res.Reason, ExitCode: res.ExitCode, Uncommitted: append([]string{}, res.Uncommitted...),
		Warnings: append([]string{}, res.Warnings...), Question: res.Question, QuestionOptions: append([]string{}, res.QuestionOptions...), LastMessage: res.LastMessage, Exec: newExecResult(res.Exec), Exceeded: res.Exceeded, SetupFailed: res.SetupFailed,
	}
}

// ExecuteRun runs the agent of a run to its end, and records how it ended: with the task of a new run, or with what
// ResumeRun has recorded. A run that fails is no error. With an error nothing was run, or its end could not be recorded.
func (r *Repository) ExecuteRun(ctx context.Context, req ExecuteRunRequest) (RunResult, error) {
	execute := func(ctx context.Context, req runs.ExecuteRequest) (runs.Result, error) {
		return runs.Execute(ctx, r.core, req)
	}
	if r.runsOnPlatform(req.ID) {
		execute = r.platforms.Execute
	}
	res, err := execute(ctx, req.internal())
	return newRunResult(res), publicError(err)
}

// AttachRunRequest says which run to attach to, and connects it with its caller.
type AttachRunRequest struct {
	ID         string   // required: id of the invocation
	Keyboard   *os.File // terminal of the user; nil: the agent is only watched
	DetachKeys []byte   // keys that detach the terminal, as it sends them; empty: none

	Screen         io.Writer      // required: receives what an agent on a terminal writes
	Stdout, Stderr io.Writer      // required: receive the output of another agent
	OnEvent        func(RunEvent) // required: receives what the stream of such an agent tells, instead of Stdout
	OnNote         func(LogNote)  // as in LogsRequest
}

// AttachRunResult says why AttachRun returned.
type AttachRunResult struct {
	Ended      bool // the run has ended; else it goes on, and the caller was detached
	Invocation Invocation
}

// AttachRun connects the terminal of a user with an interactive agent that was executed with Detached, and follows the
// output of another agent. It returns when the run has ended, when the detach keys are typed, or when ctx ends: then the
// error is its cause.
func (r *Repository) AttachRun(ctx context.Context, req AttachRunRequest) (AttachRunResult, error) {
	res, err := runs.Attach(ctx, r.core, runs.AttachRequest{
		ID: req.ID, Keyboard: req.Keyboard, DetachKeys: req.DetachKeys,
		Screen: req.Screen, Stdout: req.Stdout, Stderr: req.Stderr, OnEvent: internalOnEvent(req.OnEvent), OnNote: internalOnNote(req.OnNote), CopyJobOutput: r.copyJobOutput(ctx, req.ID),
	})
	return AttachRunResult{res.Ended, newInvocation(res.Invocation)}, publicError(err)
}

// ResumeRunRequest says how an agent goes on.
type ResumeRunRequest struct {
	ID        string        // required: id of the invocation
	Answer    []byte        // answer to its question; nil for none
	Shown     *Invocation   // the invocation as the user saw it: Answer is refused if its question is another one now; nil: not checked
	Task      []byte        // further task; nil for none
	Timeout   time.Duration // zero: as before
	CommitAll bool          // commit what the agent leaves uncommitted
	Budget    Budget        // what the agent may spend; zero fields: as before
}

func (req ResumeRunRequest) internal() runs.ResumeRequest {
	internal := runs.ResumeRequest{ID: req.ID, Answer: req.Answer, Task: req.Task, Timeout: req.Timeout, CommitAll: req.CommitAll, Budget: store.Budget(req.Budget)}
	if i := req.Shown; i != nil {
		internal.Question = &store.Question{Text: i.Question, Options: i.Options, Context: i.Context, AskedAt: i.AskedAt}
	}
	return internal
}

// ResumeRun records what the next run of an invocation is given: an answer, a task, or the reason why its work was
// rejected. ExecuteRun then runs the agent in the same sandbox with the original session.
func (r *Repository) ResumeRun(ctx context.Context, req ResumeRunRequest) (Invocation, error) {
	i, err := runs.Resume(ctx, r.core, req.internal())
	return newInvocation(i), publicError(err)
}

// AnswerRun gives an answer to an agent that waits for it while it runs. given is false, without an error, if the invocation
// is not running: then ResumeRun takes the answer. Of several answers at once the agent gets one; the others fail with
// reason.NotWaiting or reason.OtherQuestion. Of req it uses ID, Answer and Shown.
func (r *Repository) AnswerRun(req ResumeRunRequest) (_ Invocation, given bool, err error) {
	i, given, err := runs.Answer(r.core, req.internal())
	return newInvocation(i), given, publicError(err)
}

// WaitRun waits until the run of an invocation has ended or its agent asks, and returns the invocation as it is then.
func (r *Repository) WaitRun(ctx context.Context, query string) (Invocation, error) {
	i, err := r.core.Invocation(query)
	if err == nil && r.hasOpenJob(i.ID) {
		i, err = r.platforms.Wait(ctx, i.ID)
	} else if err == nil {
		i, err = runs.Wait(ctx, r.core, i.ID)
	}
	return newInvocation(i), publicError(err)
}

// StopRun ends the run of an invocation, and the other commands in its sandbox. stopped is false if nothing ran in it.
func (r *Repository) StopRun(ctx context.Context, query string) (_ Invocation, stopped bool, err error) {
	i, err := r.core.Invocation(query)
	if err == nil && r.hasOpenJob(i.ID) {
		i, stopped, err = r.platforms.Stop(ctx, i.ID)
	} else if err == nil {
		i, stopped, err = runs.Stop(ctx, r.core, i.ID)
	}
	return newInvocation(i), stopped, publicError(err)
}

// Questions lists the invocations whose agent waits for an answer, oldest question first.
func (r *Repository) Questions() ([]Invocation, error) {
	r.refreshAllJobs()
	waiting, err := runs.Questions(r.core)
	return convertAll(waiting, newInvocation), publicError(err)
}

// LogsRequest says what of an agent's output to print.
type LogsRequest struct {
	ID     string // required: id of the invocation
	Raw    bool   // byte for byte; else as text that cannot control a terminal
	Follow bool   // until the run has ended

	Stdout, Stderr io.Writer      // required: receive the output of the agent
	OnEvent        func(RunEvent) // required: receives what the stream of the agent tells, instead of Stdout, unless Raw is set
	OnNote         func(LogNote)  // receives what is not output of the agent, unless Raw is set; may be nil
}

// LogNote says something about the output that comes after it.
type LogNote struct {
	Kind  string    // one of the kinds of notes
	Run   int       // number of the run; 0 for an agent that resolves the conflicts of a landing
	Began time.Time // begin of the run
}

// Kinds of notes.
const (
	NoteDropped = runs.NoteDropped // older output is not kept any more
	NoteRun     = runs.NoteRun     // a run begins that is not the first
	NoteSetup   = runs.NoteSetup   // no agent wrote anything; the output of agency.setup follows, on Stderr

	NoteUnrecorded = runs.NoteUnrecorded // the agent of the run wrote on the terminal of the user, which is not kept
)

func (req LogsRequest) internal() runs.LogsRequest {
	return runs.LogsRequest{
		ID: req.ID, Raw: req.Raw, Follow: req.Follow, Stdout: req.Stdout, Stderr: req.Stderr,
		OnEvent: internalOnEvent(req.OnEvent), OnNote: internalOnNote(req.OnNote),
	}
}

func internalOnNote(onNote func(LogNote)) func(runs.LogNote) {
	if onNote == nil {
		return nil
	}
	return func(note runs.LogNote) { onNote(LogNote(note)) }
}

// Logs prints what the agent of an invocation wrote.
func (r *Repository) Logs(ctx context.Context, req LogsRequest) error {
	internal := req.internal()
	internal.CopyJobOutput = r.copyJobOutput(ctx, req.ID)
	return publicError(runs.Logs(ctx, r.core, internal))
}

// EventsRequest says which events to list.
type EventsRequest struct {
	ID     string // only those of this invocation; empty: of all
	Follow bool   // wait for more, until the context ends

	Each func(line []byte) error // required: gets each event as one line of JSON
}

// Events lists the events of invocations in the order of their times, and then those that are added. With Follow it ends
// with the cause of ctx.
func (r *Repository) Events(ctx context.Context, req EventsRequest) error {
	return publicError(runs.Events(ctx, r.core, runs.EventsRequest(req)))
}

// HasStream reports whether events of an agent can be read from its output.
func (r *Repository) HasStream(runner string) bool { return runs.HasStream(r.core, runner) }

// LogEntry is one event in the history of an invocation.
type LogEntry struct {
	Time  time.Time
	Event string
	JSON  json.RawMessage // object with at least time, invocation_id and event; texts of agents in it are untrusted
}

// MarshalJSON returns the JSON of the entry.
func (e LogEntry) MarshalJSON() ([]byte, error) { return e.JSON, nil }

func newLogEntry(e runs.LogEntry) LogEntry { return LogEntry{e.Time, e.Event, e.JSON} }

// Log returns the history of an invocation in the order of time, also of one that has ended: its start, the tasks and
// answers that its agent was given, its recorded events, and the commits of its branch, which "commit" events stand for.
// What the stream of the agent told is left out. For a broken invocation it returns what is there together with an error.
func (r *Repository) Log(ctx context.Context, query string) ([]LogEntry, error) {
	entries, err := runs.Log(ctx, r.core, query)
	return convertAll(entries, newLogEntry), publicError(err)
}

// Task returns the last task that the agent of an invocation was given; nil if there was none.
func (r *Repository) Task(id string) ([]byte, error) {
	task, err := runs.ReadTask(r.core, id)
	return task, publicError(err)
}
