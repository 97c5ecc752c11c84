package program

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

// UsageError reports an invalid command line. Its exit code is 129, as in git.
type UsageError struct {
	Err   error
	Usage string
	Group string // command group whose -h lists the valid commands
	Hint  string // command to type instead, if known
}

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// NewUsageError returns a usage error of the command that c runs.
func NewUsageError(c *cli.Context, err error) error {
	return &UsageError{Err: err, Usage: c.Command.UsageText}
}

// onUsageError replaces the flag package's messages about flags with ours.
func (p *Program) onUsageError(c *cli.Context, err error, _ bool) error {
	const undefined, unfinished = "flag provided but not defined: -", "flag needs an argument: -"
	usage, flags := c.App.UsageText, c.App.Flags
	if c.Command != nil && c.Command.UsageText != "" {
		usage, flags = c.Command.UsageText, append(slices.Clone(c.Command.Flags), flags...)
	}
	if name, ok := strings.CutPrefix(err.Error(), undefined); ok {
		message, hint := fmt.Sprintf("unknown option %q", p.flagAsTyped(name)), ""
		if near := argv.NearestFlag(name, flags); near != "" {
			message += fmt.Sprintf("; did you mean %q?", near)
		} else {
			hint = "'" + helpName(c) + " -h' lists the options"
		}
		err = errors.New(message)
		if _, _, dashes := argv.CutDashDash(p.Args); !dashes && strings.Contains(usage, " -- <command>") {
			return &UsageError{Err: err, Usage: usage, Hint: "a command and its options come after --, as in: git agency exec <id> -- ls -l"}
		}
		return &UsageError{Err: err, Usage: usage, Hint: hint}
	}
	if name, ok := strings.CutPrefix(err.Error(), unfinished); ok {
		err = errors.New(argv.WithDashes(strings.TrimPrefix(name, "-")) + " needs a value")
	}
	if m := invalidBoolean().FindStringSubmatch(err.Error()); m != nil {
		err = fmt.Errorf("%s takes no value, and was given %s", argv.WithDashes(m[2]), m[1])
	}
	if m := invalidNumber().FindStringSubmatch(err.Error()); m != nil {
		err = fmt.Errorf("%s %s: want a whole number", argv.WithDashes(m[2]), m[1])
	}
	return &UsageError{Err: err, Usage: usage}
}

// helpName returns the command that c runs, as it is typed, or the program.
func helpName(c *cli.Context) string {
	if c.Command != nil && c.Command.HelpName != "" {
		return c.Command.HelpName
	}
	return c.App.HelpName
}

// invalidBoolean matches the flag package's message about a value for a flag that takes none.
var invalidBoolean = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^invalid boolean value (".*") for -(\S+): `)
})

// invalidNumber matches the flag package's message about a value that is no number.
var invalidNumber = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^invalid value (".*") for flag -(\S+): `)
})

// flagAsTyped returns an option with as many dashes as the user typed, which the flag package does not keep.
func (p *Program) flagAsTyped(name string) string {
	line, _, _ := argv.CutDashDash(p.Args)
	if slices.ContainsFunc(line, func(word string) bool { return word == "-"+name || strings.HasPrefix(word, "-"+name+"=") }) {
		return "-" + name
	}
	return argv.WithDashes(name)
}

// GroupUsageError reports that the command line names no command of a group, or an unknown one.
func GroupUsageError(c *cli.Context, commands []*cli.Command, usage string) error {
	word := c.Args().First()
	if word == "" {
		return &UsageError{Err: errors.New("no command given"), Usage: usage, Group: c.Command.HelpName}
	}
	return UnknownCommandError(word, c.Command.HelpName, commands, usage)
}

// UnknownCommandError reports a word that is no command of a group, and suggests the command that was probably meant.
func UnknownCommandError(word, group string, commands []*cli.Command, usage string) error {
	message := fmt.Sprintf("%q is not a command of %s", word, group)
	if near := argv.NearestCommand(word, commands); near != "" {
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	hint := ""
	if len(commands) > 0 && strings.Contains(commands[0].UsageText, "<id>") && looksLikeID(word) {
		hint = fmt.Sprintf("type '%s %s %s'", group, commands[0].Name, word)
	}
	return &UsageError{Err: errors.New(message), Usage: usage, Group: group, Hint: hint}
}

// looksLikeID reports whether word could be an id or a prefix of one.
func looksLikeID(word string) bool {
	return word[0] >= '0' && word[0] <= '9' && strings.Trim(word, "0123456789abcdef-") == ""
}
