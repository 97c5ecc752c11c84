package gitagency

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// ErrPagerQuit reports that the user has left the pager before it had read all output.
var ErrPagerQuit = errors.New("the pager was left before it had everything")

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
	Command string   // required; as in TerminalSettings.Pager
	Env     []string // default: the environment of this process
	Stdout  *os.File // required: the terminal
	Stderr  *os.File // required
}

// Pager is a running pager that shows the bytes written to it.
type Pager struct {
	command     string
	program     *proc.Pager
	stopFeeding func() bool
	quit        bool
}

// StartPager starts a pager. When ctx ends, the pager's input is closed but the pager is not stopped, as the user may
// be reading; Close still waits for it. The pager handles Ctrl-C itself.
func StartPager(ctx context.Context, req PagerRequest) (*Pager, error) {
	env := req.Env
	if env == nil {
		env = os.Environ()
	}
	env = slices.Clone(env)
	for _, kv := range []string{"LESS=FRX", "LV=-c"} { // defaults that git gives its pager where the user has set nothing
		if name, _, _ := strings.Cut(kv, "="); !hasVariable(env, name) {
			env = append(env, kv)
		}
	}
	// This is the one place that uses a shell: git defines the value of every setting and variable that names a pager
	// as a shell command line, and none of them is taken from a repository. Like git, we run the pager without a
	// shell if its command line has no shell syntax; a missing pager is then noticed before any output is lost.
	argv := []string{"sh", "-c", req.Command}
	if !strings.ContainsAny(req.Command, "|&;<>()$`\\\"' \t\n*?[#~=%") {
		argv = []string{req.Command}
	}
	program, err := proc.StartPager(proc.Command{Argv: argv, Env: env}, req.Stdout, req.Stderr)
	if err != nil {
		return nil, &PagerMissingError{Command: req.Command, Err: err}
	}
	stop := context.AfterFunc(ctx, func() { _ = program.CloseInput() }) // Close reports its error
	return &Pager{command: req.Command, program: program, stopFeeding: stop}, nil
}

// Write returns ErrPagerQuit when the pager has closed its input.
func (p *Pager) Write(b []byte) (int, error) {
	n, err := p.program.Write(b)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		p.quit = true
		err = ErrPagerQuit
	}
	return n, err
}

// Close closes the pager's input and waits until the user has left it. The error is a *PagerMissingError if the pager
// could not be run, ErrPagerQuit if it was left early. As in git, any other exit status of the pager is ignored.
func (p *Pager) Close() error {
	p.stopFeeding()
	endErr := p.program.CloseInput()
	code, err := p.program.Wait()
	switch {
	case err != nil || endErr != nil:
		return errors.Join(err, endErr)
	case code == 126 || code == 127: // exit status of a shell that cannot run the command
		return &PagerMissingError{Command: p.command}
	case p.quit:
		return ErrPagerQuit
	}
	return nil
}
