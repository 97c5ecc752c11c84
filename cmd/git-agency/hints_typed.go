package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency"
)

// typedError is an error with the words that led to it, for hints to type them again.
type typedError struct {
	error
	words    []string // behind git agency
	settings bool     // there were some that -c gave
}

func (e *typedError) Unwrap() error { return e.error }

// typed adds to an error what was typed.
func (t *tool) typed(err error) error {
	if err == nil || len(t.args) == 0 {
		return err
	}
	return &typedError{err, t.args[1:], t.getenv("GIT_CONFIG_PARAMETERS") != ""}
}

// typedAgain is how to say the same again, with a setting if there is one. What -c said may be a secret, and is not repeated.
func typedAgain(err error, setting string, without ...string) string {
	typed := &typedError{}
	errors.As(err, &typed)
	again := "git"
	if typed.settings {
		again += " -c …"
	}
	if setting != "" {
		again += " -c " + gitagency.ShellWord(setting)
	}
	again += " agency"
	for _, word := range leaveOut(typed.words, without) {
		again += " " + gitagency.ShellWord(word)
	}
	if typed.settings {
		return "with the settings that -c gave: " + again
	}
	return again
}

// leaveOut are words without some flags and their values.
func leaveOut(words, flags []string) []string {
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

// moreTime says how to allow something that took too long more time.
func moreTime(err error) string {
	return "allow it more time: " + typedAgain(err, "agency.operationTimeout=1h")
}
