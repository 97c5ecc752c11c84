package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/quote"
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

// retryCommand returns the command line of an error again, without some flags and with one more setting unless that is
// empty. Settings that were given with -c are not repeated, since they may be secret.
func retryCommand(err error, setting string, without ...string) string {
	typed := &argvError{}
	errors.As(err, &typed)
	again := "git"
	if typed.hasConfigArgs {
		again += " -c …"
	}
	if setting != "" {
		again += " -c " + quote.Shell(setting)
	}
	again += " agency"
	for _, word := range dropFlags(typed.args, without) {
		again += " " + quote.Shell(word)
	}
	if typed.hasConfigArgs {
		return "with the settings that -c gave: " + again
	}
	return again
}

// dropFlags returns words without some flags and their values.
func dropFlags(words, flags []string) []string {
	var left []string
	for i := 0; i < len(words); i++ {
		name, _, attached := strings.Cut(words[i], "=")
		switch {
		case !slices.Contains(flags, "-"+strings.TrimLeft(name, "-")) || !strings.HasPrefix(name, "-"):
			left = append(left, words[i])
		case !attached:
			i++
		}
	}
	return left
}

// moreTimeHint returns the command that repeats a timed-out operation with a longer timeout.
func moreTimeHint(err error) string {
	return "allow it more time: " + retryCommand(err, "agency.operationTimeout=1h")
}
