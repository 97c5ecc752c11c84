package main

import (
	"errors"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
)

// argvError is an error with the command line that led to it, so that hints can repeat it.
type argvError struct {
	error
	args          []string // arguments after "git agency"
	hasConfigArgs bool     // whether git was given settings with -c
}

func (e *argvError) Unwrap() error { return e.error }

// withArgv adds the command line to an error.
func (t *tool) withArgv(err error) error {
	if err == nil || len(t.args) == 0 {
		return err
	}
	return &argvError{err, t.args[1:], t.getenv("GIT_CONFIG_PARAMETERS") != ""}
}

// retryOf returns the command line of an error, for hints.
func retryOf(err error) hints.Retry {
	typed := &argvError{}
	errors.As(err, &typed)
	return hints.Retry{Args: typed.args, HasConfigArgs: typed.hasConfigArgs}
}
