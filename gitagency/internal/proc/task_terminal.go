package proc

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/term"
)

// runOnTerminal runs a task on its own pseudo-terminal, connected to the terminal that is its Stdin. Output that goes
// elsewhere still does. Input is read only once the program runs: keys typed for a program that cannot be executed stay
// for the next reader.
func (t Task) runOnTerminal(ctx context.Context) (res TaskResult, err error) {
	outer, ok := t.Stdin.(*os.File)
	if !ok || !isTerminal(outer) {
		return TaskResult{}, &NotStartedError{errors.New("standard input is not a terminal")}
	}
	out := outer
	for _, w := range []io.Writer{t.Stderr, t.Stdout} {
		if isTerminal(w) {
			out = w.(*os.File)
		}
	}
	terminal, err := OpenTerminal(outer, out)
	if err != nil {
		return TaskResult{}, &NotStartedError{err}
	}
	defer func() { err = closeTerminal(terminal, res, err) }()
	t.Stdin = terminal.Slave
	for _, w := range []*io.Writer{&t.Stdout, &t.Stderr} {
		if isTerminal(*w) {
			*w = terminal.Slave
		}
	}
	running := t.OnRunning
	t.OnRunning = func() {
		terminal.StartInput()
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
		return ctx.Err() != nil || terminal.Suspend(stop)
	}
	t.terminalMoves = terminal.Moves
	return t.runContained(ctx)
}

// endSignalDelay is how long a signal that ends us may take to arrive after one that has continued us.
const endSignalDelay = 100 * time.Millisecond

// runOnOutputTerminals runs a task that gets pseudo-terminals of its own in place of the terminals among Stdout and
// Stderr: one, unless those are two terminals. They do not control its session, so that a program that wants to ask the
// user fails at once. Where there are no pseudo-terminals it gets pipes.
func (t Task) runOnOutputTerminals(ctx context.Context) (res TaskResult, err error) {
	if isTerminal(t.Stdin) {
		return TaskResult{}, &NotStartedError{errors.New("standard input is a terminal, and its keys are not for the program")}
	}
	var outer *os.File
	var last *Terminal
	for _, w := range []*io.Writer{&t.Stdout, &t.Stderr} {
		if !isTerminal(*w) {
			continue
		}
		if f := (*w).(*os.File); last == nil || !sameTerminal(outer, f) {
			if !HasTerminals {
				*w = struct{ io.Writer }{f} // copied through a pipe
				continue
			}
			terminal, openErr := OpenOutputTerminal(ctx, f)
			if openErr != nil {
				return TaskResult{}, &NotStartedError{openErr}
			}
			defer func() { err = closeTerminal(terminal, res, err) }()
			outer, last = f, terminal
		}
		*w = last.Slave
	}
	return t.runContained(ctx)
}

// closeTerminal closes the terminal of a task that has ended with res and err, and returns that error, or that of the
// terminal. After any other end than success it resets modes: the program may not have had the time.
func closeTerminal(terminal *Terminal, res TaskResult, err error) error {
	if err != nil || res.ExitCode != 0 || res.Stopped {
		terminal.ResetModes()
	}
	if closeErr := terminal.Close(); closeErr != nil && err == nil {
		return &OutputError{closeErr}
	}
	return err
}

// isTerminal does not use File.Fd, which would make the file blocking for others.
func isTerminal(stream any) (is bool) {
	f, ok := stream.(*os.File)
	if !ok || f == nil {
		return false
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) { is = term.IsTerminal(int(fd)) })
	return is && err == nil
}
