package proc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// Coprocess is a running program that answers one request after the other. One goroutine may use it, and a second one
// may write to it.
type Coprocess struct {
	Stdout *bufio.Reader

	stdin       io.WriteCloser
	cmd         *exec.Cmd
	stderr      bytes.Buffer
	cancel      context.CancelFunc
	cancelCause func() error // cause why it was told to end, or nil
	grace       time.Duration
}

// StartCoprocess starts the command and leaves its standard input open. Close ends it, and so does the end of ctx. Its
// standard error is kept in memory.
func StartCoprocess(ctx context.Context, c Command) (*Coprocess, error) {
	if len(c.Argv) == 0 {
		return nil, errors.New("no program given")
	}
	if err := context.Cause(ctx); err != nil {
		return nil, &NotStartedError{err}
	}
	if c.DieWithParent { // the goroutine that starts it would have to stay on its thread until Close
		return nil, &NotStartedError{errors.New("a coprocess cannot have DieWithParent")}
	}
	cancelCause := func() error { return context.Cause(ctx) }
	runCtx, cancel := context.WithCancel(ctx)
	t := &Coprocess{cmd: exec.CommandContext(runCtx, c.Argv[0], c.Argv[1:]...), cancel: cancel, cancelCause: cancelCause, grace: c.Grace}
	if t.grace == 0 {
		t.grace = 5 * time.Second
	}
	t.cmd.Dir, t.cmd.Env, t.cmd.ExtraFiles, t.cmd.Stderr = c.Dir, c.Env, c.Inherit, &t.stderr
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	t.cmd.Cancel = func() error { return syscall.Kill(-t.cmd.Process.Pid, syscall.SIGTERM) }
	t.cmd.WaitDelay = t.grace
	out, err := t.cmd.StdoutPipe()
	if err == nil {
		t.stdin, err = t.cmd.StdinPipe()
	}
	if err == nil {
		err = startRestricted(t.cmd, c.Restrict)
	}
	if err != nil {
		cancel()
		return nil, &NotStartedError{err}
	}
	if err := c.Limits.limitStarted(t.cmd.Process.Pid); err != nil { // it must not run without its limits
		err = errors.Join(err, killGroup(t.cmd.Process.Pid))
		_ = t.cmd.Wait()
		cancel()
		return nil, err
	}
	t.Stdout = bufio.NewReaderSize(out, 64<<10)
	return t, nil
}

// WriteString writes to the program's standard input.
func (t *Coprocess) WriteString(question string) error {
	_, err := io.WriteString(t.stdin, question)
	return err
}

// Stop has the program end at once. It may be called at any time; Close has to be called too.
func (t *Coprocess) Stop() { t.cancel() }

// Close closes the program's standard input and returns when nothing of the program is left. The result says how it
// ended; unread output is lost. The error wraps context.Cause if ctx ended first; any other error means that the
// outcome is unknown.
func (t *Coprocess) Close() (Result, error) {
	_ = t.stdin.Close()
	// A program that still writes would block for ever on a full pipe.
	_, _ = io.Copy(io.Discard, t.Stdout)
	err := t.cmd.Wait()
	t.cancel()
	res := newResult(t.cmd.ProcessState, t.stderr.Bytes())
	var exit *exec.ExitError
	switch cause := t.cancelCause(); {
	case err == nil:
		return res, nil
	case cause != nil:
		return res, errors.Join(cause, killGroup(t.cmd.Process.Pid))
	case errors.As(err, &exit):
		return res, nil
	default:
		return res, errors.Join(err, killGroup(t.cmd.Process.Pid))
	}
}
