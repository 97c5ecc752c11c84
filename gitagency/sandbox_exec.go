package gitagency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

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

	// Grace is the time between SIGTERM and SIGKILL: zero is DefaultGrace, negative is none.
	Grace time.Duration

	// Stdout and Stderr get what the command writes; an *os.File becomes the command's own. What is nil is
	// returned in the result, up to CaptureLimit.
	Stdout, Stderr io.Writer
}

const (
	// DefaultGrace is how long a command has to end after it was asked to.
	DefaultGrace = 5 * time.Second
	// CaptureLimit is how much of each stream a result holds.
	CaptureLimit = 16 << 20
)

// ExecResult is how a command ended.
type ExecResult struct {
	ExitCode    int    // its own; 128+n when signal n killed it; 124 when it timed out, 126 or 127 when it cannot be run
	Stdout      string // what was captured
	Stderr      string
	Truncated   bool // there was more than the capture holds
	Duration    time.Duration
	TimedOut    bool
	Signal      string // such as SIGKILL; empty when no signal killed it
	LeftRunning int    // how many processes it had left running, which were then ended
	ContainedBy string // how nothing of it could get away: "pid-namespace", or "subreaper" where there is none
}

// The exit codes that are not the command's own.
const (
	exitTimedOut = 124
	exitStopped  = 128 + int(unix.SIGTERM)
)

var errTimedOut = errors.New("timed out")

// Exec runs a command in the sandbox and returns when it has ended together with everything it started,
// also what became a daemon. A command that fails or times out is not an error. A command that cannot be
// run (*CannotRunError), is ended because ctx is (then the error wraps its cause) or because the sandbox is
// being discarded (ErrStopped) is, with a result; other errors mean that nothing was run.
func (s *Sandbox) Exec(ctx context.Context, opts ExecOptions) (ExecResult, error) {
	if err := opts.check(); err != nil {
		return ExecResult{}, err
	}
	timeout, err := s.execTimeout(opts)
	if err != nil {
		return ExecResult{}, err
	}
	site, err := s.open(ctx)
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

	var stdout, stderr capture
	task := proc.Task{
		Argv: opts.Argv, Dir: dir, Env: s.environment(opts.Env, site.worktree, path),
		Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr,
		Hold: []*os.File{site.occupied}, Label: s.repo.store.InvocationDir(s.repo.ID, s.ID), Grace: max(opts.Grace, 0),
	}
	if opts.Grace == 0 {
		task.Grace = DefaultGrace
	}
	if task.Stdout == nil {
		task.Stdout = &stdout
	}
	if task.Stderr == nil {
		task.Stderr = &stderr
	}
	began := time.Now()
	leave := func() error { return nil }
	if opts.Terminal {
		if leave, err = connectTerminal(&task); err != nil {
			return ExecResult{}, &SetupError{ID: s.ID, Err: err}
		}
	}
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if timeout > 0 {
		bounded, cancel = context.WithTimeoutCause(ctx, timeout, errTimedOut)
	}
	defer cancel()
	ending, err := task.Run(bounded)
	if leaveErr := leave(); leaveErr != nil {
		s.repo.warn("terminal: %v", leaveErr)
	}

	res := ExecResult{
		ExitCode: ending.Exit, Stdout: stdout.text(), Stderr: stderr.text(), Truncated: stdout.over || stderr.over,
		Duration: time.Since(began), LeftRunning: ending.Leftovers, ContainedBy: string(ending.Contained),
	}
	if ending.Signal != 0 { // those for realtime programs have numbers for names
		res.Signal = cmp.Or(unix.SignalName(ending.Signal), fmt.Sprintf("SIG%d", int(ending.Signal)))
	}
	var cannot *CannotRunError
	switch {
	case errors.As(err, &cannot):
		res.ExitCode = cannot.Code
	case is[*proc.NotStartedError](err):
		return ExecResult{}, &SetupError{ID: s.ID, Err: err}
	case errors.Is(err, errTimedOut):
		res.TimedOut, res.ExitCode, err = true, exitTimedOut, nil
	case ending.Stopped:
		res.ExitCode, err = exitStopped, errors.Join(ErrStopped, err)
	}
	s.recordExec(opts, path, began, res)
	return res, err
}

func (o ExecOptions) check() error {
	switch {
	case len(o.Argv) == 0 || o.Argv[0] == "":
		return &InvalidError{What: "command", Value: "", Want: "a program to run"}
	case slices.ContainsFunc(o.Argv, hasNUL) || slices.ContainsFunc(o.Env, hasNUL):
		return &InvalidError{What: "command", Value: strings.Join(o.Argv, " "), Want: "words and variables without NUL"}
	}
	for _, kv := range o.Env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			return &InvalidError{What: "variable", Value: kv, Want: "NAME=value"}
		}
		if strings.HasPrefix(name, "AGENCY_") && slices.Contains(ownVariables, name) {
			return &InvalidError{What: "variable", Value: name, Want: "another name: this one says which sandbox it is"}
		}
	}
	return nil
}

func hasNUL(s string) bool { return strings.ContainsRune(s, 0) }

// connectTerminal gives a task a terminal of its own, behind the one that is its input, and says how to
// leave it when the task has ended. What of its output goes elsewhere still does.
func connectTerminal(task *proc.Task) (leave func() error, err error) {
	at, ok := task.Stdin.(*os.File)
	if !ok || !isTerminal(at) {
		return nil, errors.New("standard input is no terminal")
	}
	out := at
	for _, w := range []io.Writer{task.Stderr, task.Stdout} {
		if isTerminal(w) {
			out = w.(*os.File)
		}
	}
	terminal, err := proc.OpenTerminal(at, out)
	if err != nil {
		return nil, err
	}
	task.Stdin, task.Terminal = terminal.Slave, true
	for _, w := range []*io.Writer{&task.Stdout, &task.Stderr} {
		if isTerminal(*w) {
			*w = terminal.Slave
		}
	}
	terminal.Relay()
	return terminal.Close, nil
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (s *Sandbox) execTimeout(opts ExecOptions) (time.Duration, error) {
	if opts.Timeout != 0 || opts.Terminal { // who sits at a terminal can see that it takes long
		return opts.Timeout, nil
	}
	return s.repo.OperationTimeout()
}

// The variables that tell a command where it runs.
var ownVariables = []string{"AGENCY_INVOCATION_ID", "AGENCY_SANDBOX", "AGENCY_WORKTREE"}

// environment is that of the caller, without what would lead git elsewhere.
func (s *Sandbox) environment(further []string, worktree, dir string) []string {
	env := slices.DeleteFunc(git.Elsewhere(s.repo.opts.Env), func(kv string) bool { return strings.HasPrefix(kv, "OLDPWD=") })
	env = append(append(env, "PWD="+dir), further...)
	env = append(env, "AGENCY_INVOCATION_ID="+s.ID, "AGENCY_SANDBOX="+s.tree, "AGENCY_WORKTREE="+worktree)
	// Of a variable that is there twice some programs take the first, some the last.
	last := map[string]int{}
	for i, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		last[name] = i
	}
	unique := env[:0]
	for i, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); last[name] == i {
			unique = append(unique, kv)
		}
	}
	return unique
}

// recordExec adds the command to the history of the invocation. Values of variables are nobody's business.
func (s *Sandbox) recordExec(opts ExecOptions, dir string, began time.Time, res ExecResult) {
	cwd, err := filepath.Rel(s.tree, dir)
	if err != nil {
		cwd = dir
	}
	err = s.repo.store.AppendEvent(s.repo.ID, s.ID, execEvent{
		Time: s.repo.now(), Event: "exec", Argv: opts.Argv, Cwd: cwd, Duration: res.Duration.Milliseconds(),
		ExitCode: res.ExitCode, Signal: res.Signal, TimedOut: res.TimedOut, ContainedBy: res.ContainedBy,
	})
	if err != nil {
		s.repo.warn("history of %s: %v", s.ID, err)
	}
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
}

// capture keeps the beginning of what is written to it. It never refuses the rest: a command that writes
// too much is not ended for it.
type capture struct {
	kept []byte
	over bool
}

func (c *capture) Write(p []byte) (int, error) {
	room := min(len(p), CaptureLimit-len(c.kept))
	c.kept = append(c.kept, p[:room]...)
	c.over = c.over || room < len(p)
	return len(p), nil
}

// text is what was kept, without a character that the limit cut in two.
func (c *capture) text() string {
	text := c.kept
	for n := 1; c.over && n < utf8.UTFMax && n <= len(text); n++ {
		if begun := text[len(text)-n:]; utf8.RuneStart(begun[0]) {
			if !utf8.FullRune(begun) {
				text = text[:len(text)-n]
			}
			break
		}
	}
	return string(text)
}
