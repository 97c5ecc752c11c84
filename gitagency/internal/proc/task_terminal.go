package proc

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/terminal"
)

// runOnTerminal runs a task on its own pseudo-terminal, connected to the terminal that is its Stdin. Output that goes
// elsewhere still does. Input is read only once the program runs: keys typed for a program that cannot be executed stay
// for the next reader.
func (t Task) runOnTerminal(ctx context.Context) (res TaskResult, err error) {
	outer, ok := t.Stdin.(*os.File)
	if !ok || !terminal.Is(outer) {
		return TaskResult{}, &NotStartedError{errors.New("standard input is not a terminal")}
	}
	out := outer
	for _, w := range []io.Writer{t.Stderr, t.Stdout} {
		if terminal.Is(w) {
			out = w.(*os.File)
		}
	}
	pty, err := terminal.Open(outer, out)
	if err != nil {
		return TaskResult{}, &NotStartedError{err}
	}
	defer func() { err = closeTerminal(pty, res, err) }()
	t.Stdin = pty.Slave
	for _, w := range []*io.Writer{&t.Stdout, &t.Stderr} {
		if terminal.Is(*w) {
			*w = pty.Slave
		}
	}
	running := t.OnRunning
	t.OnRunning = func() {
		pty.StartInput()
		if running != nil {
			running()
		}
	}
	t.onStopped = func(stop syscall.Signal) (foreground bool) {
		if stop == syscall.SIGTTIN || stop == syscall.SIGTTOU {
			// "kill %1" sends SIGTERM together with SIGCONT. Stopped again, we would not handle it.
			select {
			case <-ctx.Done():
			case <-time.After(endSignalDelay):
			}
		}
		return ctx.Err() != nil || pty.Suspend(stop)
	}
	t.terminalMoves = pty.Moves
	return t.runContained(ctx)
}

// endSignalDelay is how long a signal that ends us may take to arrive after one that has continued us.
const endSignalDelay = 100 * time.Millisecond

// runOnOutputTerminals runs a task that gets pseudo-terminals of its own in place of the terminals among Stdout and
// Stderr: one, unless those are two terminals. They do not control its session, so that a program that wants to ask the
// user fails at once. Where there are no pseudo-terminals it gets pipes.
func (t Task) runOnOutputTerminals(ctx context.Context) (res TaskResult, err error) {
	if terminal.Is(t.Stdin) {
		return TaskResult{}, &NotStartedError{errors.New("standard input is a terminal, and its keys are not for the program")}
	}
	var outer *os.File
	var last *terminal.PTY
	for _, w := range []*io.Writer{&t.Stdout, &t.Stderr} {
		if !terminal.Is(*w) {
			continue
		}
		if f := (*w).(*os.File); last == nil || !terminal.Same(outer, f) {
			if !terminal.Supported {
				*w = struct{ io.Writer }{f} // copied through a pipe
				continue
			}
			pty, openErr := terminal.OpenOutput(ctx, f)
			if openErr != nil {
				return TaskResult{}, &NotStartedError{openErr}
			}
			defer func() { err = closeTerminal(pty, res, err) }()
			outer, last = f, pty
		}
		*w = last.Slave
	}
	return t.runContained(ctx)
}

// closeTerminal closes the terminal of a task that has ended with res and err, and returns that error, or that of the
// terminal. After any other end than success it resets modes: the program may not have had the time.
func closeTerminal(pty *terminal.PTY, res TaskResult, err error) error {
	if err != nil || res.ExitCode != 0 || res.Stopped {
		pty.ResetModes()
	}
	if closeErr := pty.Close(); closeErr != nil && err == nil {
		return &OutputError{closeErr}
	}
	return err
}
