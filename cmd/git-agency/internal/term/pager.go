// Package term shows text to a person: terminal detection and width, colour and links, columns, escaping of text that
// could control the terminal, progress, and the process of the pager. It is given its settings and must never read git's
// configuration or know the records of git-agency.
package term

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// ErrPagerQuit reports that the user has left the pager before it had read all output.
var ErrPagerQuit = errors.New("the pager was quit before it had read all output")

// PagerMissingError reports a pager that cannot be run.
type PagerMissingError struct {
	Command string
	Err     error // nil where the shell reported the failure by its exit status
}

func (e *PagerMissingError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("cannot run the pager %q", e.Command)
	}
	return fmt.Sprintf("cannot run the pager %q: %v", e.Command, e.Err)
}

func (e *PagerMissingError) Unwrap() error { return e.Err }

// PagerRequest names the pager to start and its terminal.
type PagerRequest struct {
	Command string   // required: a shell command line
	Env     []string // default: the environment of this process
	Stdout  *os.File // required: the terminal
	Stderr  *os.File // required
}

// Pager is a running pager that shows the bytes written to it. It stays in our session and our process group: only then
// may it read the keyboard, and only then do Ctrl-C and Ctrl-Z reach both processes.
type Pager struct {
	command     string
	cmd         *exec.Cmd
	input       *os.File
	closeOnce   sync.Once
	closeErr    error // of closing input
	stopFeeding func() bool
	quit        bool
}

// StartPager starts a pager. When ctx ends, the pager's input is closed but the pager is not stopped, as the user may
// be reading; Close still waits for it. The pager handles Ctrl-C itself.
func StartPager(ctx context.Context, req PagerRequest) (*Pager, error) {
	argv := pagerArgv(req.Command)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = pagerEnv(req.Env), req.Stdout, req.Stderr
	read, write, err := os.Pipe()
	if err != nil {
		return nil, &PagerMissingError{Command: req.Command, Err: err}
	}
	cmd.Stdin = read
	err = cmd.Start()
	closeErr := read.Close() // with our copy open, we would never get EPIPE when the pager has ended
	if err != nil {
		return nil, &PagerMissingError{Command: req.Command, Err: errors.Join(err, closeErr, write.Close())}
	}
	p := &Pager{command: req.Command, cmd: cmd, input: write}
	p.stopFeeding = context.AfterFunc(ctx, func() { _ = p.closeInput() }) // Close reports its error
	return p, nil
}

// pagerArgv returns the program and arguments of a pager. Every setting and variable that names a pager holds a shell
// command line, as in git, and none of them is taken from a repository. Like git, we run the pager without a shell if
// its command line has no shell syntax; a missing pager is then noticed before any output is lost.
func pagerArgv(command string) []string {
	if strings.ContainsAny(command, "|&;<>()$`\\\"' \t\n*?[#~=%") {
		return []string{"sh", "-c", command}
	}
	return []string{command}
}

// pagerEnv adds the defaults that git gives its pager where the user has set nothing.
func pagerEnv(env []string) []string {
	if env == nil {
		env = os.Environ()
	}
	env = slices.Clone(env)
	for _, kv := range []string{"LESS=FRX", "LV=-c"} {
		name, _, _ := strings.Cut(kv, "=")
		if !slices.ContainsFunc(env, func(set string) bool { return strings.HasPrefix(set, name+"=") }) {
			env = append(env, kv)
		}
	}
	return env
}

// Write returns ErrPagerQuit when the pager has closed its input.
func (p *Pager) Write(b []byte) (int, error) {
	n, err := p.input.Write(b)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		p.quit = true
		err = ErrPagerQuit
	}
	return n, err
}

// closeInput closes the pager's standard input, which also interrupts a Write that is blocked. It may be called more
// than once.
func (p *Pager) closeInput() error {
	p.closeOnce.Do(func() { p.closeErr = p.input.Close() })
	return p.closeErr
}

// Close closes the pager's input and waits until the user has left it. The error is a *PagerMissingError if the pager
// could not be run, ErrPagerQuit if it was left early. As in git, any other exit status of the pager is ignored.
func (p *Pager) Close() error {
	p.stopFeeding()
	closeErr := p.closeInput()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	code := p.cmd.ProcessState.ExitCode()
	switch {
	case err != nil || closeErr != nil:
		return errors.Join(err, closeErr)
	case code == 126 || code == 127: // exit status of a shell that cannot run the command
		return &PagerMissingError{Command: p.command}
	case p.quit:
		return ErrPagerQuit
	}
	return nil
}
