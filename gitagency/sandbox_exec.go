package gitagency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/upload"
)

// ExecOptions says what to run in a sandbox, and how.
type ExecOptions struct {
	// Argv is required. No shell makes anything of it; a name is looked up on PATH.
	Argv []string

	// Cwd is where the command begins: relative to the sandbox, or absolute and inside of it.
	Cwd string

	// Env holds further variables, each as NAME=value; they win.
	Env []string

	// Stdin is what the command reads; nil is nothing. An *os.File becomes the command's own.
	Stdin io.Reader

	// Terminal gives the command a terminal of its own, connected to Stdin, which is the one that a person
	// sits at, and to those of Stdout and Stderr that are terminals too.
	Terminal bool

	// Timeout bounds the command: zero is OperationTimeout, or none with a terminal; negative is none.
	Timeout time.Duration

	// Limits are further ones, for this command: they may be tighter than those of the sandbox, and not
	// wider. Limits.Timeout does not count; Timeout does, and is bound by that of the sandbox.
	Limits Limits

	// Grace is the time between SIGTERM and SIGKILL: zero is DefaultGrace, negative is none.
	Grace time.Duration

	// Hurry, once it is closed, ends a grace that has begun. Nil never does.
	Hurry <-chan struct{}

	// Stdout and Stderr get what the command writes; an *os.File becomes the command's own. What is nil is
	// returned in the result, up to CaptureLimit.
	Stdout, Stderr io.Writer
}

// DefaultGrace is how long a command has to end after it was asked to.
const DefaultGrace = 5 * time.Second

// ExecResult is how a command ended.
type ExecResult struct {
	ExitCode    int    // its own; 128+n when signal n killed it; 124 when it timed out, 126 or 127 when it cannot be run
	Stdout      string // what was captured
	Stderr      string
	Truncated   bool          // there was more than the capture holds
	Duration    time.Duration // until everything it started was gone too
	TimedOut    bool
	Signal      string          // such as SIGKILL; empty when no signal killed it
	LeftRunning int             // how many processes it had left running, which were then ended
	Limits      []EnforcedLimit // what bounded it
	Walls       []string        // what stood around it; none with isolation none
	ContainedBy string          // how nothing of it could get away: "pid-namespace", else "subreaper", else "process-group"
}

// The exit codes that are not the command's own.
const (
	exitTimedOut = 124
	exitStopped  = 128 + int(unix.SIGTERM)
)

// Exec runs a command in the sandbox and returns when it has ended together with everything it started,
// also what became a daemon. A command that fails or times out is not an error.
//
// A limit that is wider than that of the sandbox is an *InvalidError; one that cannot be enforced here, or
// anything else that could not be set up, is a *SetupError.
//
// These errors come with a result: a *CannotRunError; ErrStopped, when somebody wants the sandbox to go;
// the cause of ctx, when that ended first; an *OutputError, when what the command wrote could not be passed
// on; ErrLost, when something of it may still run. With any other error nothing was run.
func (s *Sandbox) Exec(ctx context.Context, opts ExecOptions) (ExecResult, error) {
	if err := opts.check(); err != nil {
		return ExecResult{}, err
	}
	timeout, err := s.execTimeout(opts)
	if err != nil {
		return ExecResult{}, err
	}
	site, err := s.open(ctx)
	if is[*HalfWayError](err) || is[*LostRollbackError](err) {
		err = &SetupError{ID: s.ID, Err: err}
	}
	if err != nil {
		return ExecResult{}, err
	}
	defer site.close()
	// What a killed put left is taken back first; one that is under way is nobody's business here.
	if err := upload.Recover(ctx, site.Tree, 0); err != nil && !is[*LockTimeoutError](err) {
		s.repo.warn("sandbox %s: %v", s.ID, err)
	}
	dir, path, err := site.Directory(opts.Cwd)
	if err != nil {
		return ExecResult{}, fmt.Errorf("working directory: %w", err)
	}
	defer dir.Close()

	bounds, err := s.bound(ctx, opts, site.limits, timeout)
	if err != nil {
		return ExecResult{}, err
	}
	defer bounds.close()

	run, env, standing := proc.Task.Run, s.environment(opts.Env, site.worktree, path), []string{}
	if behindWalls(site.prims) {
		inside, err := s.approach(ctx, site)
		if err != nil {
			return ExecResult{}, err
		}
		environment := func() []string { return s.walledEnvironment(inside.walls, opts.Env, site.worktree, path) }
		env, standing = environment(), inside.walls.stands.Walls() // while they are being built
		if err := inside.enter(ctx); err != nil {
			return ExecResult{}, err
		}
		defer inside.leave(ctx, opts.Hurry)
		if inside.walls.proxy != "" { // where that is, only those know who are inside
			env = environment()
		}
		run = func(t proc.Task, ctx context.Context) (proc.Ending, error) { return inside.room.Run(ctx, t) }
	}

	var stdout, stderr capture
	task := proc.Task{
		Argv: opts.Argv, Dir: dir, Env: env,
		Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr, Terminal: opts.Terminal,
		// From then on the supervisor alone is in the sandbox: we may be stopped, and nobody shall wait for us.
		Hold: append(bounds.hold, site.occupied), Running: site.handOver, Handed: site.handOver,
		Label:   s.repo.store.InvocationDir(s.repo.ID, s.ID),
		Timeout: bounds.timeout, Grace: opts.grace(), Hurry: opts.Hurry, Limits: bounds.program,
	}
	if task.Stdout == nil {
		task.Stdout = &stdout
	}
	if task.Stderr == nil {
		task.Stderr = &stderr
	}
	began := time.Now()
	ending, err := run(task, ctx)
	if is[*proc.NotStartedError](err) {
		if cause := context.Cause(ctx); cause != nil {
			return ExecResult{}, cause
		}
		return ExecResult{}, &SetupError{ID: s.ID, Err: err}
	}
	res, err := result(ending, err)
	res.Duration, res.Limits, res.Walls = time.Since(began), bounds.enforced, standing
	res.Stdout, res.Stderr, res.Truncated = stdout.text(), stderr.text(), stdout.over || stderr.over
	s.recordExec(opts, path, res)
	return res, err
}

// result says how a command ended, and what of that is an error.
func result(ending proc.Ending, err error) (ExecResult, error) {
	res := ExecResult{ExitCode: ending.Exit, LeftRunning: ending.Leftovers, ContainedBy: string(ending.Contained)}
	if ending.Signal != 0 { // those for realtime programs have numbers for names
		res.Signal = cmp.Or(unix.SignalName(ending.Signal), fmt.Sprintf("SIG%d", int(ending.Signal)))
	}
	var cannot *CannotRunError
	switch {
	case errors.As(err, &cannot):
		res.ExitCode = cannot.Code
	case errors.Is(err, proc.ErrTimeout):
		res.TimedOut, res.ExitCode = true, exitTimedOut
		if err == proc.ErrTimeout { // and nothing else
			err = nil
		}
	case ending.Stopped:
		res.ExitCode, err = exitStopped, errors.Join(ErrStopped, err)
	}
	return res, err
}

func (o ExecOptions) check() error {
	if len(o.Argv) == 0 || o.Argv[0] == "" {
		return &InvalidError{What: "command", Value: "", Want: "a program to run"}
	}
	if slices.ContainsFunc(o.Argv, hasNUL) {
		return &InvalidError{What: "command", Value: o.Argv[0], Want: "words without NUL"}
	}
	for _, kv := range o.Env { // whose values are not for messages
		name, _, ok := strings.Cut(kv, "=")
		switch {
		case !ok || name == "":
			return &InvalidError{What: "variable", Value: name, Want: "NAME=value"}
		case hasNUL(kv):
			return &InvalidError{What: "variable", Value: name, Want: "a value without NUL"}
		case slices.Contains(ownVariables, name):
			return &InvalidError{What: "variable", Value: name, Want: "another name: this one says which sandbox it is"}
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
	if opts.Timeout != 0 || opts.Terminal { // who sits at a terminal can see that it takes long
		return opts.Timeout, nil
	}
	return s.repo.OperationTimeout()
}

// The variables that tell a command where it runs.
const (
	invocationVariable = "AGENCY_INVOCATION_ID"
	sandboxVariable    = "AGENCY_SANDBOX"
	worktreeVariable   = "AGENCY_WORKTREE"
	isolationVariable  = "AGENCY_ISOLATION" // behind walls only
)

var ownVariables = []string{invocationVariable, sandboxVariable, worktreeVariable, isolationVariable}

// environment is that of the caller, without what would lead git elsewhere.
func (s *Sandbox) environment(further []string, worktree, dir string) []string {
	env := slices.DeleteFunc(git.Elsewhere(s.repo.opts.Env), func(kv string) bool { return strings.HasPrefix(kv, "OLDPWD=") })
	return lastOnly(slices.Concat(env, []string{"PWD=" + dir}, further, s.ownVariables(worktree)))
}

func (s *Sandbox) ownVariables(worktree string) []string {
	return []string{invocationVariable + "=" + s.ID, sandboxVariable + "=" + s.tree, worktreeVariable + "=" + worktree}
}

// recordExec adds the command to the history of the invocation. Values of variables are nobody's business.
func (s *Sandbox) recordExec(opts ExecOptions, dir string, res ExecResult) {
	cwd, err := filepath.Rel(s.tree, dir)
	if err != nil {
		cwd = dir
	}
	s.repo.record(s.ID, execEvent{
		Time: s.repo.now(), Event: "exec", Argv: opts.Argv, Cwd: cwd, Duration: res.Duration.Milliseconds(),
		ExitCode: res.ExitCode, Signal: res.Signal, TimedOut: res.TimedOut, ContainedBy: res.ContainedBy, Walls: res.Walls, Limits: enforcers(res.Limits),
	})
}

type execEvent struct {
	Time        time.Time `json:"time"`
	Event       string    `json:"event"`
	Argv        []string  `json:"argv"`
	Cwd         string    `json:"cwd"`
	Duration    int64     `json:"duration_ms"`
	ExitCode    int       `json:"exit_code"`
	Signal      string    `json:"signal"`
	TimedOut    bool      `json:"timed_out"`
	ContainedBy string    `json:"contained_by"`
	Walls       []string  `json:"walls"`

	Limits map[string]string `json:"limits,omitempty"` // and what enforced each; that of time is always there, and not told
}
