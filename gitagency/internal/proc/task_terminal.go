package proc

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/term"
)

// runAtTerminal runs a task on a terminal of its own, behind the one that is its input. What of its output
// goes elsewhere still does. Keys count from when the program runs: what is typed for one that cannot be
// run is for whoever reads next.
func (t Task) runAtTerminal(ctx context.Context) (_ Ending, err error) {
	at, ok := t.Stdin.(*os.File)
	if !ok || !isTerminal(at) {
		return Ending{}, &NotStartedError{errors.New("standard input is no terminal")}
	}
	out := at
	for _, w := range []io.Writer{t.Stderr, t.Stdout} {
		if isTerminal(w) {
			out = w.(*os.File)
		}
	}
	terminal, err := OpenTerminal(at, out)
	if err != nil {
		return Ending{}, &NotStartedError{err}
	}
	defer func() {
		if closeErr := terminal.Close(); closeErr != nil && err == nil {
			err = &OutputError{closeErr}
		}
	}()
	t.Stdin = terminal.Slave
	for _, w := range []*io.Writer{&t.Stdout, &t.Stderr} {
		if isTerminal(*w) {
			*w = terminal.Slave
		}
	}
	running := t.Running
	t.Running = func() {
		terminal.Relay()
		if running != nil {
			running()
		}
	}
	return t.runSomehow(ctx)
}

// isTerminal asks without changing how others wait for the file, which Fd would.
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
