package program

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
)

// InterruptedError is the signal that interrupted this program.
type InterruptedError struct{ Signal syscall.Signal }

func (e InterruptedError) Error() string {
	if e.Signal == syscall.SIGINT {
		return "interrupted"
	}
	return fmt.Sprintf("interrupted (%s)", e.Signal)
}

// SilentError is an error that only sets the exit code if Silent returns true: its message has been printed before.
type SilentError interface {
	error
	Silent() bool
}

// reportError prints an error as git does, with hints on what to type next, and returns its exit code.
func (p *Program) reportError(err error) int {
	if err == nil {
		return 0
	}
	code := p.config.ExitCode(err)
	var silent SilentError
	if errors.As(err, &silent) && silent.Silent() {
		return code
	}
	severity := "error"
	if code == hints.ExitFatal {
		severity = "fatal"
	}
	fmt.Fprintf(p.Stderr, "%s %s\n", p.PaintPrefix(severity+":"), strings.ReplaceAll(term.Printable(err.Error()), "\n", "\n       "))
	var usage *UsageError
	if errors.As(err, &usage) {
		fmt.Fprintf(p.Stderr, "usage: %s\n", usage.Usage)
	}
	for _, hint := range p.config.Hints(err) {
		p.PrintHint(hint)
	}
	return code
}

// HintsFor returns the hints on an error of this command line, for a command that reports it itself.
func (p *Program) HintsFor(err error) []string { return p.config.Hints(p.WithArgv(err)) }

// argvError is an error with the command line that led to it, so that hints can repeat it.
type argvError struct {
	error
	retry hints.Retry
}

func (e *argvError) Unwrap() error { return e.error }

// WithArgv adds the command line to an error.
func (p *Program) WithArgv(err error) error {
	if err == nil || len(p.Args) == 0 {
		return err
	}
	return &argvError{err, p.Retry()}
}

// Retry returns the command line, for hints.
func (p *Program) Retry() hints.Retry {
	return hints.Retry{Args: p.Args[1:], HasConfigArgs: p.Getenv("GIT_CONFIG_PARAMETERS") != ""}
}

// RetryOf returns the command line of an error, for hints.
func RetryOf(err error) hints.Retry {
	typed := &argvError{}
	errors.As(err, &typed)
	return typed.retry
}
