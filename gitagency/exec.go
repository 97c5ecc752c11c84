package gitagency

import (
	"context"
	"io"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/requests"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/terminal"
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
	// those of Stdout and Stderr that are terminals too. When the command stops, as on Ctrl-Z, Exec stops the process
	// group of the caller, and continues the command when the caller is continued.
	Terminal bool

	// Timeout bounds the run time: zero is agency.operationTimeout, else DefaultOperationTimeout, or none with
	// Terminal; negative is none.
	Timeout time.Duration

	// Limits are additional limits for this command; they may be tighter than those of the sandbox, not wider.
	// Limits.Timeout is ignored; use Timeout, which may not exceed that of the sandbox.
	Limits Limits

	// Grace is the time between SIGTERM and SIGKILL: zero is DefaultGrace, negative is none.
	Grace time.Duration

	// Force, once closed, ends a grace period that has begun. Nil never does.
	Force <-chan struct{}

	// Stdout and Stderr receive the output; an *os.File is passed to the command directly, except that a pseudo-terminal
	// is passed instead of a terminal, from which the command could read. A nil stream is captured in the result, up to
	// CaptureLimit.
	Stdout, Stderr io.Writer
}

// DefaultGrace is the default time between SIGTERM and SIGKILL.
const DefaultGrace = sandbox.DefaultGrace

// HasTerminals reports whether ExecOptions.Terminal is supported on this system.
const HasTerminals = terminal.Supported

// CaptureLimit is the number of bytes of each output stream that a result holds.
const CaptureLimit = proc.CaptureLimit

func (o ExecOptions) internal() sandbox.ExecOptions {
	return sandbox.ExecOptions{
		Argv: o.Argv, Cwd: o.Cwd, Env: o.Env, Stdin: o.Stdin, Terminal: o.Terminal, Timeout: o.Timeout,
		Limits: o.Limits.internal(), Grace: o.Grace, Force: o.Force, Stdout: o.Stdout, Stderr: o.Stderr,
	}
}

// ExecResult reports how a command ended.
type ExecResult struct {
	ExitCode    int    // exit code of the command; 128+n if killed by signal n; 124: timed out; 126 or 127: could not be run
	Stdout      string // captured output
	Stderr      string
	Truncated   bool          // the output exceeded CaptureLimit
	Duration    time.Duration // time until all processes of the command had ended
	TimedOut    bool
	Signal      string          // such as SIGKILL; empty if no signal killed it
	LeftRunning int             // number of processes that the command left running and that were then killed
	Limits      []EnforcedLimit // limits that were enforced
	Walls       []string        // walls that were in place; none with isolation none
	Refused     []string        // network targets that the walls refused to the command, such as "example.com:443"
	ContainedBy string          // containment of its processes: "pid-namespace", "subreaper" or "process-group"
}

func newExecResult(r sandbox.ExecResult) ExecResult {
	return ExecResult{
		ExitCode: r.ExitCode, Stdout: r.Stdout, Stderr: r.Stderr, Truncated: r.Truncated, Duration: r.Duration, TimedOut: r.TimedOut,
		Signal: r.Signal, LeftRunning: r.LeftRunning, Limits: convertAll(r.Limits, newEnforcedLimit), Walls: r.Walls, Refused: r.Refused, ContainedBy: r.ContainedBy,
	}
}

// Exec runs a command in the sandbox and returns when it and all processes it started, daemons included, have ended.
// A command that fails or times out is not an error.
//
// A limit that is wider than that of the sandbox is an *InvalidError; a limit that cannot be enforced on this
// machine, or anything else that could not be set up, is a *SetupError.
//
// These errors come with a result: *CannotRunError; ErrStopped, when the sandbox is being ended; the cause of ctx,
// when that ended first; a *StateError with reason.Output, when the output could not be passed on; ErrSupervisorKilled,
// when some process may still run. With any other error nothing was run.
func (s *Sandbox) Exec(ctx context.Context, opts ExecOptions) (ExecResult, error) {
	o := opts.internal()
	o.Serve = requests.Server(s.sandbox.Repo, s.ID)
	result, err := s.sandbox.Exec(ctx, o)
	return newExecResult(result), publicError(err)
}
