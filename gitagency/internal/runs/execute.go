package runs

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/procfs"
	"github.com/git-agency/git-agency/gitagency/internal/requests"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// ExecuteRequest says which run to execute, and connects it with its caller.
type ExecuteRequest struct {
	ID string // required: full id of the invocation

	Side *SideTask // task to run besides that of the invocation; nil: run the task of the invocation

	// Stdout and Stderr receive what the agent writes, besides the logs; nil: only the logs do.
	Stdout, Stderr io.Writer

	// Terminal connects an interactive agent with the terminal of the caller: Stdin, Stdout and Stderr.
	Terminal bool
	Stdin    io.Reader

	// Detached says that no user waits for this process. It keeps a terminal for an interactive agent, which Attach connects
	// with that of a user, and its warnings in the history.
	Detached bool

	Force   <-chan struct{}    // once closed, ends a grace period that has begun; may be nil
	OnBegin func()             // called once this process has taken the run over; may be nil
	OnEvent func(runner.Event) // called with what the stream of the agent tells, and with conflicts to notify of; may be nil

	// Later receives the last step, which notifies the user and takes up to announceTimeout. A caller that reports the end of the
	// run calls it afterwards. Nil: Execute does it before it returns.
	Later func(lastStep func())

	// OnQuestion is called with a question for whose answer the agent waits while it runs; may be nil.
	OnQuestion func(question string, options []string)
}

// Result says how a run ended.
type Result struct {
	ID              string
	Path            string // sandbox
	Status          string
	Reason          string   // why it has this status, if it did not simply finish
	ExitCode        int      // exit code of the run: that of the agent, unless Status says otherwise
	Uncommitted     []string // files that the agent left uncommitted
	Warnings        []string // what a finished run should not hide
	Question        string   // question that the agent asks; empty for none
	QuestionOptions []string // answers that it offers
	LastMessage     string
	Exec            sandbox.ExecResult
	Exceeded        string // option of run whose limit the agent exceeded, such as --max-cost; empty for none
	SetupFailed     bool   // agency.setup failed, and the program was not started

	question *store.Question
}

// Exit codes of a run that are not those of its agent.
const (
	ExitFailed    = 1
	ExitPreflight = 6
	ExitBlocked   = 7
	ExitTimedOut  = 124
	ExitSetup     = 125
	ExitStopped   = 128 + 15 // as that of a process that SIGTERM killed
)

// StoppedReason is the reason of a run that the user stopped.
const StoppedReason = "it was stopped"

// Execute runs the agent of a run to its end, and records how it ended: the task of a new run, or what Resume has recorded.
// A run that fails is no error. With an error nothing was run, or nothing could be recorded.
func Execute(ctx context.Context, r *core.Repository, req ExecuteRequest) (Result, error) {
	if req.Detached {
		r = keepWarnings(r, req.ID)
	}
	s, err := sandbox.Open(r, req.ID)
	if err != nil {
		return Result{}, err
	}
	before, err := begin(r, s.ID, req)
	if err != nil {
		return Result{}, err
	}
	a := &attempt{repo: r, sandbox: s, record: before, req: req}
	a.markRun()
	closeTerminal := func() error { return nil }
	if req.Detached && isInteractive(before) {
		closeTerminal, err = a.keepTerminal()
	}
	if req.OnBegin != nil {
		req.OnBegin()
	}
	end := ending{err: err}
	if err == nil {
		end = a.run(ctx)
	}
	res, err := a.finish(ctx, end)
	err = errors.Join(err, closeTerminal()) // those who are attached read the record when the connection ends
	switch {
	case req.Side != nil: // its caller reports the end
	case req.Later != nil:
		req.Later(func() { a.announce(ctx, res) })
	default:
		a.announce(ctx, res)
	}
	return res, err
}

// isInteractive reports whether the next run of an agent is on a terminal: one that is given a text is not.
func isInteractive(m store.InvocationMeta) bool {
	return m.Mode == store.ModeHeaded && m.ResumeWith == ""
}

// attempt is one run of an agent.
type attempt struct {
	repo    *core.Repository
	sandbox *sandbox.Sandbox
	record  store.InvocationMeta // from before this run
	req     ExecuteRequest
	stream  *streamReader // nil if the agent has none
	budget  budget
	changed bool           // a snapshot was taken since conflicts were computed
	notices sync.WaitGroup // notifications under way

	askTimeout time.Duration // how long the agent waits for an answer while it runs; zero for not at all, negative for no limit
}

// ending is how the program of a run ended.
type ending struct {
	exec sandbox.ExecResult
	err  error // why it was not run, or not to its end

	limit time.Duration // of the run, with what comes before its program; not positive for none

	logErr      error        // why its output could not be kept
	interrupted bool         // the caller ended it
	exceeded    *budgetError // nil if the run kept its budget; err may be nil, because the program may have ended by itself
}

// begin records that this process supervises the run, unless another one does, and returns the record from before: that of
// the agent of a side task, if there is one.
func begin(r *core.Repository, id string, req ExecuteRequest) (before store.InvocationMeta, err error) {
	none, busy, now := false, false, r.Now()
	err = r.Store.UpdateInvocationMetaIf(r.ID, id, func(m *store.InvocationMeta) bool {
		before = *m
		if none = m.SessionID == "" && req.Side == nil; none {
			return false
		}
		if busy = m.HasOpenJob() || procfs.IsAlive(m.PID, m.PIDStarted) && !isClaimedForUs(m.PID); busy {
			return false
		}
		m.Status, m.PID, m.PIDStarted = store.StatusRunning, os.Getpid(), procfs.Identity(os.Getpid())
		if req.Side != nil { // how the task of the invocation ended stays known
			return true
		}
		m.RunStartedAt, m.Runs = &now, m.Runs+1
		m.OnTerminal = req.Terminal || req.Detached && isInteractive(*m)
		m.StatusReason, m.Warnings, m.LastMessage, m.Question, m.ExitCode = "", nil, "", nil, ""
		if m.Landing == store.Rejected { // the agent works on it again
			m.Landing = ""
		}
		return true
	})
	if err == nil && none {
		err = &NoRunError{ID: id}
	}
	if err == nil && busy {
		err = &fault.RunningError{ID: id}
	}
	if err != nil {
		return before, err
	}
	begun := statusEvent{Time: r.EventTime(), Event: store.StatusRunning, Runner: before.Runner, Runs: before.Runs + 1}
	if req.Side != nil {
		if before, err = req.Side.adapt(before); err != nil {
			return before, err
		}
		begun.Runner, begun.Runs = before.Runner, 0
	}
	r.AppendEvent(id, begun)
	return before, nil
}

// isClaimedForUs reports whether a process has claimed a run that this one is to execute: it is this process, or the one
// that started it to execute the run detached, and waits.
func isClaimedForUs(pid int) bool { return pid == os.Getpid() || pid == os.Getppid() }

// statusEvent is the event of a run that begins or ends. Its name is the status.
type statusEvent struct {
	Time     time.Time `json:"time"`
	Event    string    `json:"event"`
	Runner   string    `json:"runner,omitempty"`
	Runs     int       `json:"runs,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	ExitCode *int      `json:"exit_code,omitempty"`
	Warnings []string  `json:"warnings,omitempty"`
	Question string    `json:"question,omitempty"`
	Options  []string  `json:"question_options,omitempty"` // answers that the agent offers
}

// run executes the program of the run.
func (a *attempt) run(ctx context.Context) ending {
	if _, err := a.takeQuestion(); err != nil { // of a run that was killed, or of a command; Resume has shown it
		a.repo.Warn("sandbox %s: %v", a.sandbox.ID, err)
	}
	limit, err := timeout(a.repo, a.record, a.req.Terminal)
	if err != nil {
		return ending{err: &fault.SetupError{ID: a.sandbox.ID, Err: err}}
	}
	if a.askTimeout, err = a.repo.Settings.AskTimeout(); err != nil {
		return ending{err: &fault.SetupError{ID: a.sandbox.ID, Err: err}}
	}
	if a.req.Side != nil { // its end is awaited by a command
		a.askTimeout = 0
	}
	began := time.Now()
	if err := a.sandbox.Setup(ctx, sandbox.SetupRequest{Timeout: limit, Force: a.req.Force}); err != nil {
		return ending{err: err, interrupted: context.Cause(ctx) != nil, limit: limit}
	}
	opts, err := a.execOptions()
	if err != nil {
		return ending{err: &fault.SetupError{ID: a.sandbox.ID, Err: err}}
	}
	if opts.Timeout = limit; limit > 0 {
		opts.Timeout = max(limit-time.Since(began), time.Millisecond)
	}
	opts.Serve = requests.Server(a.repo, a.sandbox.ID)
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	a.budget = budget{limits: a.record.Budget, before: a.record.RunFields, end: end}
	logs, err := a.connectOutput(&opts)
	if err != nil {
		return ending{err: &fault.SetupError{ID: a.sandbox.ID, Err: err}}
	}
	stopSnapshots := a.snapshotPeriodically(ctx)
	stopWatching := a.watchQuestions(running, end)
	result, err := a.sandbox.Exec(running, opts)
	stopWatching()
	stopSnapshots()
	ended := ending{limit: limit, exec: result, err: err, logErr: logs.close(), interrupted: err != nil && context.Cause(ctx) != nil}
	_ = errors.As(context.Cause(running), &ended.exceeded) // else it stays nil
	return ended
}
