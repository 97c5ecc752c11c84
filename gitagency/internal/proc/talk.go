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

// Conversation is a program that answers one question after the other. It is for one goroutine, and a second one that
// only asks.
type Conversation struct {
	Answers *bufio.Reader

	stdin  io.WriteCloser
	cmd    *exec.Cmd
	stderr bytes.Buffer
	cancel context.CancelFunc
	told   func() error // why it was told to end, if it was
	grace  time.Duration
}

// Talk starts the command and leaves its standard input open. Who talks ends it with Close; a ctx that has
// ended ends it too. What it says on standard error is kept, up to a limit that nobody reads past.
func Talk(ctx context.Context, c Command) (*Conversation, error) {
	if len(c.Argv) == 0 {
		return nil, errors.New("no program named")
	}
	if err := context.Cause(ctx); err != nil {
		return nil, &NotStartedError{err}
	}
	told := func() error { return context.Cause(ctx) }
	own, cancel := context.WithCancel(ctx)
	t := &Conversation{cmd: exec.CommandContext(own, c.Argv[0], c.Argv[1:]...), cancel: cancel, told: told, grace: c.Grace}
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
		err = t.cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, &NotStartedError{err}
	}
	t.Answers = bufio.NewReaderSize(out, 64<<10)
	return t, nil
}

// Ask says something to the program.
func (t *Conversation) Ask(question string) error {
	_, err := io.WriteString(t.stdin, question)
	return err
}

// Close ends the conversation and returns when nothing of the program is left. The result says how it ended;
// what it had not said yet is lost. An error means that ctx ended first (then it wraps context.Cause), or that
// there is no knowing.
func (t *Conversation) Close() (Result, error) {
	_ = t.stdin.Close()
	// Else one that still writes would wait for ever for somebody to read it.
	_, _ = io.Copy(io.Discard, t.Answers)
	err := t.cmd.Wait()
	t.cancel()
	res := Result{Stderr: t.stderr.Bytes(), ExitCode: exitCode(t.cmd.ProcessState)}
	var exit *exec.ExitError
	switch cause := t.told(); {
	case err == nil:
		return res, nil
	case cause != nil:
		return res, errors.Join(cause, endGroup(t.cmd.Process.Pid, t.grace))
	case errors.As(err, &exit):
		return res, nil
	default:
		return res, errors.Join(err, endGroup(t.cmd.Process.Pid, t.grace))
	}
}
