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

// ErrPagerQuit: the user has left the pager, and nobody reads what is still to come.
var ErrPagerQuit = errors.New("the pager was left before it had everything")

// PagerMissingError is a pager that cannot be run.
type PagerMissingError struct {
	Command string
	Err     error // nil when only a shell knows
}

func (e *PagerMissingError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("cannot run the pager %q", e.Command)
	}
	return fmt.Sprintf("cannot run the pager %q: %v", e.Command, e.Err)
}

func (e *PagerMissingError) Unwrap() error { return e.Err }

// PagerRequest says what to page with, and where.
type PagerRequest struct {
	Command string   // required; as in TerminalSettings.Pager
	Env     []string // default: the environment of this process
	Stdout  *os.File // required; the terminal
	Stderr  *os.File // required
}

// Pager shows what is written to it.
type Pager struct {
	command string
	program *proc.Fed
	stop    func() bool
	quit    bool
}

// StartPager starts a pager. When ctx ends, the pager gets no more; it is not stopped, as the user may
// be reading, and Close still waits for it. Ctrl-C is the pager's to understand.
func StartPager(ctx context.Context, req PagerRequest) (*Pager, error) {
	env := req.Env
	if env == nil {
		env = os.Environ()
	}
	env = slices.Clone(env)
	for _, kv := range []string{"LESS=FRX", "LV=-c"} { // what git gives its pager where the user gave nothing
		if name, _, _ := strings.Cut(kv, "="); !isSet(env, name) {
			env = append(env, kv)
		}
	}
	// The one place where a shell is right: git defines the value of each setting and variable that a
	// pager comes from as a shell command line, and none of them is taken from a repository. Like git,
	// we leave the shell out where there is nothing for it to do, and so learn that a pager is missing
	// before it has swallowed anything.
	argv := []string{"sh", "-c", req.Command}
	if !strings.ContainsAny(req.Command, "|&;<>()$`\\\"' \t\n*?[#~=%") {
		argv = []string{req.Command}
	}
	program, err := proc.Feed(proc.Command{Argv: argv, Env: env}, req.Stdout, req.Stderr)
	if err != nil {
		return nil, &PagerMissingError{Command: req.Command, Err: err}
	}
	stop := context.AfterFunc(ctx, func() { _ = program.End() }) // Close reports what goes wrong there
	return &Pager{command: req.Command, program: program, stop: stop}, nil
}

// Write returns ErrPagerQuit when the pager reads no more.
func (p *Pager) Write(b []byte) (int, error) {
	n, err := p.program.Write(b)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		p.quit = true
		err = ErrPagerQuit
	}
	return n, err
}

// Close tells the pager that it has everything, and waits until the user has left it. The error is a
// *PagerMissingError when there was no pager after all, ErrPagerQuit when it was left early. With what
// status a pager ends otherwise says nothing, as in git.
func (p *Pager) Close() error {
	p.stop()
	endErr := p.program.End()
	code, err := p.program.Wait()
	switch {
	case err != nil || endErr != nil:
		return errors.Join(err, endErr)
	case code == 126 || code == 127: // the shell's way to say so
		return &PagerMissingError{Command: p.command}
	case p.quit:
		return ErrPagerQuit
	}
	return nil
}
