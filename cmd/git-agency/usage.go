package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
)

// usageError reports an invalid command line. Its exit code is 129, as in git.
type usageError struct {
	err   error
	usage string
	group string // command group whose -h lists the valid commands
	hint  string // command to type instead, if known
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func newUsageError(c *cli.Context, err error) error {
	return &usageError{err: err, usage: c.Command.UsageText}
}

// onUsageError replaces the flag package's messages about flags with ours.
func (t *tool) onUsageError(c *cli.Context, err error, _ bool) error {
	const undefined, unfinished = "flag provided but not defined: -", "flag needs an argument: -"
	usage, flags := c.App.UsageText, c.App.Flags
	if c.Command != nil && c.Command.UsageText != "" {
		usage, flags = c.Command.UsageText, append(slices.Clone(c.Command.Flags), flags...)
	}
	if name, ok := strings.CutPrefix(err.Error(), undefined); ok {
		var names []string
		for _, f := range flags {
			names = append(names, f.Names()...)
		}
		message := fmt.Sprintf("unknown option %q", t.flagAsTyped(name))
		if near := argv.NearestWord(name, names); near != "" {
			message += fmt.Sprintf("; did you mean %q?", argv.WithDashes(near))
		}
		err = errors.New(message)
		if _, _, dashes := argv.CutDashDash(t.args); !dashes && strings.Contains(usage, " -- <command>") {
			return &usageError{err: err, usage: usage, hint: "a command and its options come after --, as in: exec <id> -- ls -l"}
		}
	}
	if name, ok := strings.CutPrefix(err.Error(), unfinished); ok {
		err = errors.New(argv.WithDashes(strings.TrimPrefix(name, "-")) + " needs a value")
	}
	if m := invalidBoolean().FindStringSubmatch(err.Error()); m != nil {
		err = fmt.Errorf("%s takes no value, and was given %s", argv.WithDashes(m[2]), m[1])
	}
	return &usageError{err: err, usage: usage}
}

// invalidBoolean matches the flag package's message about a value for a flag that takes none.
var invalidBoolean = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^invalid boolean value (".*") for -(\S+): `)
})

// flagAsTyped returns an option with as many dashes as the user typed, which the flag package does not keep.
func (t *tool) flagAsTyped(name string) string {
	line, _, _ := argv.CutDashDash(t.args)
	if slices.ContainsFunc(line, func(word string) bool { return word == "-"+name || strings.HasPrefix(word, "-"+name+"=") }) {
		return "-" + name
	}
	return argv.WithDashes(name)
}

// groupUsageError reports that the command line names no command of a group, or an unknown one.
func groupUsageError(c *cli.Context, commands []*cli.Command, usage string) error {
	word := c.Args().First()
	if word == "" {
		return &usageError{err: errors.New("no command given"), usage: usage, group: c.Command.HelpName}
	}
	return unknownCommandError(word, c.Command.HelpName, commands, usage)
}

// unknownCommandError reports a word that is no command of a group, and suggests the command that was probably meant.
func unknownCommandError(word, group string, commands []*cli.Command, usage string) error {
	message := fmt.Sprintf("%q is not a command of %s", word, group)
	if near := argv.NearestCommand(word, commands); near != "" {
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	hint := ""
	if len(commands) > 0 && strings.Contains(commands[0].UsageText, " <id>") && looksLikeID(word) {
		hint = fmt.Sprintf("type '%s %s %s'", group, commands[0].Name, word)
	}
	return &usageError{err: errors.New(message), usage: usage, group: group, hint: hint}
}

// looksLikeID reports whether word could be an id or a prefix of one.
func looksLikeID(word string) bool {
	return word[0] >= '0' && word[0] <= '9' && strings.Trim(word, "0123456789abcdef-") == ""
}
