package proc

import (
	"errors"
	"os"
	"os/exec"
	"sync"
)

// Pager is a program that reads our output and shows it on a terminal. It stays in our session and our process group:
// only then may it read the keyboard, and only then do Ctrl-C and Ctrl-Z reach both processes.
type Pager struct {
	cmd       *exec.Cmd
	input     *os.File
	closeOnce sync.Once
	closeErr  error // of closing input
}

// StartPager starts a program with a pipe as its standard input and stdout and stderr as its output. Only Argv, Dir and
// Env of the command are used. The error is a *NotStartedError.
func StartPager(c Command, stdout, stderr *os.File) (*Pager, error) {
	if len(c.Argv) == 0 {
		return nil, &NotStartedError{errors.New("no program named")}
	}
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.Dir, c.Env, stdout, stderr
	read, write, err := os.Pipe()
	if err != nil {
		return nil, &NotStartedError{err}
	}
	cmd.Stdin = read
	err = cmd.Start()
	closeErr := read.Close() // with our copy open, we would never get EPIPE when the program has ended
	if err != nil {
		return nil, &NotStartedError{errors.Join(err, closeErr, write.Close())}
	}
	return &Pager{cmd: cmd, input: write}, nil
}

// Write writes to the program's standard input. The error wraps syscall.EPIPE when the program has closed it, and
// os.ErrClosed after CloseInput.
func (f *Pager) Write(p []byte) (int, error) { return f.input.Write(p) }

// CloseInput closes the program's standard input, and also interrupts a Write that is blocked. It may be called more
// than once.
func (f *Pager) CloseInput() error {
	f.closeOnce.Do(func() { f.closeErr = f.input.Close() })
	return f.closeErr
}

// Wait waits until the program has ended and returns its exit code, 128+n when signal n killed it. Call CloseInput
// first, or the program may wait for more input.
func (f *Pager) Wait() (int, error) {
	err := f.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return exitCode(f.cmd.ProcessState), err
	}
	return exitCode(f.cmd.ProcessState), nil
}
