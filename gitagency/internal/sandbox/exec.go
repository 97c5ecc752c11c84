package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"golang.org/x/sys/unix"
)

// ExecOptions describes a command to run in a sandbox.
type ExecOptions struct {
	// Argv is required. It is not interpreted by a shell; a program name is looked up on PATH.
	Argv []string

	// Cwd is the working directory: relative to the sandbox, or absolute and inside it.
	Cwd string

	// Env holds additional variables, as NAME=value; they override inherited ones.
	Env []string

	// Stdin is the input of the command; nil is empty input. An *os.File is passed to the command directly; it must not be
	// a terminal without Terminal.
	Stdin io.Reader

	// Terminal gives the command a pseudo-terminal, connected to Stdin, which must be the user's terminal, and to
	// those of Stdout and Stderr that are terminals too.
	Terminal bool

	// Timeout bounds the run time: zero is agency.operationTimeout, or none with Terminal; negative is none.
	Timeout time.Duration

	// Limits are additional limits for this command; they may be tighter than those of the sandbox, not wider.
	// Limits.Timeout is ignored; use Timeout, which may not exceed that of the sandbox.
	Limits confine.Limits

	// Grace is the time between SIGTERM and SIGKILL: zero is DefaultGrace, negative is none.
	Grace time.Duration

	// Force, once closed, ends a grace period that has begun. Nil never does.
	Force <-chan struct{}

	// Stdout and Stderr receive the output; an *os.File is passed to the command directly, except that a pseudo-terminal
	// is passed instead of a terminal, from which the command could read. A nil stream is captured in the result, up to
	// CaptureLimit.
	Stdout, Stderr io.Writer

	// Serve, if set, is called behind walls with the mailbox of the sandbox before the command starts, and stop when it has
	// ended.
	Serve func(mailbox string) (stop func())
}

// DefaultGrace is the default time between SIGTERM and SIGKILL.
const DefaultGrace = 5 * time.Second

// ExecResult reports how a command ended.
type ExecResult struct {
	ExitCode    int    // exit code of the command; 128+n if killed by signal n; 124: timed out; 126 or 127: could not be run
	Stdout      string // captured output
	Stderr      string
	Truncated   bool          // the output exceeded CaptureLimit
	Duration    time.Duration // time until all processes of the command had ended
	TimedOut    bool
	Signal      string                // such as SIGKILL; empty if no signal killed it
	LeftRunning int                   // number of processes that the command left running and that were then killed
	Limits      []confine.Enforcement // limits that were enforced
	Walls       []string              // walls that were in place; none with isolation none
	Refused     []string              // network targets that the walls refused to the command, such as "example.com:443"
	ContainedBy string                // containment of its processes: "pid-namespace", "subreaper" or "process-group"
}

// Exit codes set by git-agency.
const (
	exitTimedOut = 124
	exitStopped  = 128 + int(unix.SIGTERM)
)

// Exec runs a command in the sandbox and returns when it and all processes it started, daemons included, have ended.
// A command that fails or times out is not an error.
//
// A limit that is wider than that of the sandbox is an *InvalidError; a limit that cannot be enforced on this
// machine, or anything else that could not be set up, is a *SetupError.
//
// These errors come with a result: *CannotRunError; ErrStopped, when the sandbox is being ended; the cause of ctx,
// when that ended first; *OutputError, when the output could not be passed on; ErrSupervisorKilled, when some process may still
// run. With any other error nothing was run.
func (s *Sandbox) Exec(ctx context.Context, opts ExecOptions) (ExecResult, error) {
	if err := cmp.Or(opts.check(), s.CheckNoOpenJob()); err != nil {
		return ExecResult{}, err
	}
	timeout, err := s.execTimeout(opts)
	if err != nil {
		return ExecResult{}, err
	}
	h, err := s.open(ctx)
	if fault.Is[*fault.UnfinishedTransitionError](err) || fault.Is[*fault.LostRollbackError](err) || fault.Is[*noLayerError](err) {
		err = &fault.SetupError{ID: s.ID, Err: err}
	}
	if err != nil {
		return ExecResult{}, err
	}
	defer h.Close()
	work := execTree{sandbox: s, tree: h.Tree, isOverlay: h.overlay != nil, paths: h.paths, cwd: opts.Cwd}
	defer work.close()
	if err := work.enter(ctx); err != nil {
		return ExecResult{}, err
	}
	bounds, err := s.prepareLimits(ctx, opts, h.limits, timeout)
	if err != nil {
		return ExecResult{}, err
	}
	defer bounds.close()
	record := execRecord{sandbox: s}
	defer record.wait()
	defer s.exchangeWithClone(ctx, h.Prims, opts.Force)()

	run, refused, env, wallNames, root := proc.Task.Run, &refusedTargets{}, s.execEnvironment(opts.Env, h.worktreeID, work.path), []string{}, ""
	if NeedsWalls(h.Prims) {
		session, err := s.prepareNamespace(ctx, h)
		if err != nil {
			return ExecResult{}, err
		}
		session.walls.warnSkipped(s.Repo)
		session.walls.warnNotInForce(s)
		environment := func() []string { return s.walledEnvironment(session.walls, opts.Env, h.worktreeID, work.path) }
		session.importTimeout, env, wallNames = importTimeout(bounds.timeout), environment(), session.walls.applied.WallNames() // computed while the walls are being built
		if err := session.enter(ctx); err != nil {
			return ExecResult{}, err
		}
		defer work.leave(ctx, session, opts.Force)
		if err := work.enterMounted(ctx, session); err != nil {
			return ExecResult{}, err
		}
		if session.walls.proxyAddr != "" || work.mounted != nil { // the port and the directory are known only after entering
			env = environment()
		}
		defer s.serveMailbox(opts, h.Prims)()
		s.warnSigningOff(env)
		root = session.walls.commandRoot()
		refused, run = &session.refused, func(t proc.Task, ctx context.Context) (proc.TaskResult, error) { return session.ns.Run(ctx, t) }
	}

	var stdout, stderr proc.OutputBuffer
	task := proc.Task{
		Argv: opts.Argv, Dir: work.dir, Env: env, Root: root,
		Stdin: opts.Stdin, Stdout: orCapture(opts.Stdout, &stdout), Stderr: orCapture(opts.Stderr, &stderr), Terminal: opts.Terminal,
		// From then on only the supervisor holds the lock, so that others do not have to wait for this process, which
		// may be suspended.
		HoldOpen: append(bounds.holdOpen, h.InvocationLock), OnRunning: h.handOver, OnHandedOver: h.handOver,
		Label:   s.Repo.Store.InvocationDir(s.Repo.ID, s.ID),
		Timeout: bounds.timeout, Grace: opts.grace(), Force: opts.Force, Limits: bounds.procLimits,
	}
	began := time.Now()
	ending, err := run(task, ctx)
	if fault.Is[*proc.NotStartedError](err) {
		if cause := context.Cause(ctx); cause != nil {
			return ExecResult{}, cause
		}
		return ExecResult{}, &fault.SetupError{ID: s.ID, Err: err}
	}
	res, err := execResult(ending, err)
	res.Duration, res.Limits, res.Walls, res.Refused = time.Since(began), bounds.enforced, wallNames, refused.list()
	res.Stdout, res.Stderr, res.Truncated = stdout.Text(), stderr.Text(), stdout.Truncated || stderr.Truncated
	record.write(opts, work.path, res) // while the namespaces are left
	return res, err
}

// orCapture returns the stream of a command's output, or captured where the caller gave none.
func orCapture(stream io.Writer, captured *proc.OutputBuffer) io.Writer {
	if stream == nil {
		return captured
	}
	return stream
}

// importTimeout returns the time that the import of git state before and after a command may take: as long as the
// command itself, but long enough for usual commits, which were made even by a command that timed out.
func importTimeout(command time.Duration) time.Duration {
	const least = 10 * time.Second
	if command <= 0 {
		return 0
	}
	return max(command, least)
}

// execResult translates the end of a process into a result, and drops the errors that the result expresses.
func execResult(ending proc.TaskResult, err error) (ExecResult, error) {
	res := ExecResult{ExitCode: ending.ExitCode, LeftRunning: ending.Leftovers, ContainedBy: string(ending.Containment)}
	if ending.Signal != 0 { // real-time signals have no names
		res.Signal = cmp.Or(unix.SignalName(ending.Signal), fmt.Sprintf("SIG%d", int(ending.Signal)))
	}
	var cannot *fault.CannotRunError
	switch {
	case errors.As(err, &cannot):
		res.ExitCode = cannot.Code
	case errors.Is(err, proc.ErrTimeout):
		res.TimedOut, res.ExitCode = true, exitTimedOut
		if err == proc.ErrTimeout { // not joined with another error
			err = nil
		}
	case ending.Stopped:
		res.ExitCode, err = exitStopped, errors.Join(fault.ErrStopped, err)
	}
	return res, err
}

func (o ExecOptions) check() error {
	if len(o.Argv) == 0 || o.Argv[0] == "" {
		return &fault.InvalidError{What: "command", Value: "", Want: "a program to run"}
	}
	if slices.ContainsFunc(o.Argv, hasNUL) {
		return &fault.InvalidError{What: "command", Value: o.Argv[0], Want: "arguments without NUL bytes"}
	}
	for _, kv := range o.Env { // never print values in messages
		name, _, ok := strings.Cut(kv, "=")
		switch {
		case !ok || name == "":
			return &fault.InvalidError{What: "variable", Value: name, Want: "NAME=value"}
		case hasNUL(kv):
			return &fault.InvalidError{What: "variable", Value: name, Want: "a value without NUL bytes"}
		case slices.Contains(reservedVariables, name):
			return &fault.InvalidError{What: "variable", Value: name, Want: "another name: git-agency sets this variable to identify the sandbox"}
		}
	}
	return nil
}

func hasNUL(s string) bool { return strings.ContainsRune(s, 0) }

func (o ExecOptions) grace() time.Duration {
	if o.Grace == 0 {
		return DefaultGrace
	}
	return max(o.Grace, 0)
}

func (s *Sandbox) execTimeout(opts ExecOptions) (time.Duration, error) {
	if opts.Timeout != 0 || opts.Terminal { // a user at a terminal sees that it takes long
		return opts.Timeout, nil
	}
	return s.Repo.Settings.OperationTimeout()
}

const (
	sandboxVariable  = "AGENCY_SANDBOX"
	worktreeVariable = "AGENCY_WORKTREE"
	taskVariable     = "AGENCY_TASK_FILE"
	answerVariable   = "AGENCY_ANSWER_FILE"
	questionVariable = "AGENCY_QUESTION_FILE"
)

var reservedVariables = []string{core.InvocationVariable, sandboxVariable, worktreeVariable, core.IsolationVariable, taskVariable, answerVariable, questionVariable}

// execEnvironment returns the environment of the caller without the variables that would point git to another
// repository, or are those of an agent that is the caller.
func (s *Sandbox) execEnvironment(extra []string, worktree, dir string) []string {
	env := slices.DeleteFunc(git.WithoutRepoVariables(s.Repo.Opts.Env), func(kv string) bool {
		return strings.HasPrefix(kv, "OLDPWD=") || strings.HasPrefix(kv, AskTimeoutVariable+"=")
	})
	return settings.DedupeEnv(slices.Concat(env, []string{"PWD=" + dir}, extra, s.identityVariables(worktree)))
}

func (s *Sandbox) identityVariables(worktree string) []string {
	env := []string{core.InvocationVariable + "=" + s.ID, sandboxVariable + "=" + s.Tree, worktreeVariable + "=" + worktree}
	return append(env, s.mailboxVariables()...)
}
