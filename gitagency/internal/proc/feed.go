package proc

import (
	"errors"
	"os"
	"os/exec"
	"sync"
)

// Fed is a program that reads what we write and shows it on a terminal, as a pager does. It stays in
// our session and our process group: only then may it read the keyboard, and only then do Ctrl-C and
// Ctrl-Z reach both of us.
type Fed struct {
	cmd   *exec.Cmd
	input *os.File
	once  sync.Once
	err   error // of closing the input
}

// Feed starts a program with a pipe as its standard input. Of the command, Argv, Dir and Env count.
// The program writes to stdout and stderr, which are its own. The error is a *NotStartedError.
func Feed(c Command, stdout, stderr *os.File) (*Fed, error) {
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
	closeErr := read.Close() // else we would never hear that the program has ended
	if err != nil {
		return nil, &NotStartedError{errors.Join(err, closeErr, write.Close())}
	}
	return &Fed{cmd: cmd, input: write}, nil
}

// Write gives the program something to read. The error wraps syscall.EPIPE when it reads no more, and
// os.ErrClosed after End.
func (f *Fed) Write(p []byte) (int, error) { return f.input.Write(p) }

// End tells the program that there is nothing more to read, also while a Write is waiting for it to
// read. It may be called more than once.
func (f *Fed) End() error {
	f.once.Do(func() { f.err = f.input.Close() })
	return f.err
}

// Wait waits until the program has ended and returns its exit code, 128+n when signal n killed it.
// Call End first, or the program may wait for us.
func (f *Fed) Wait() (int, error) {
	err := f.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return exitCode(f.cmd.ProcessState), err
	}
	return exitCode(f.cmd.ProcessState), nil
}
