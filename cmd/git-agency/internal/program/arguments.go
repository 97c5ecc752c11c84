package program

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
)

// PositionalArgs returns the positional arguments, or a usage error unless there are least to most of them; a negative
// most means no limit.
func PositionalArgs(c *cli.Context, least, most int) ([]string, error) {
	args := c.Args().Slice()
	switch {
	case len(args) < least:
		missing, hint := cmp.Or(argv.MissingArgument(c.Command.UsageText, len(args)), "further argument"), ""
		if strings.HasPrefix(missing, "<id>") {
			hint = idsHint(c)
		}
		return nil, &UsageError{Err: fmt.Errorf("no %s given", missing), Usage: c.Command.UsageText, Hint: hint}
	case most >= 0 && len(args) > most:
		return nil, NewUsageError(c, fmt.Errorf("unexpected argument %q", args[most]))
	case slices.Contains(args, ""):
		return nil, NewUsageError(c, errors.New("an argument is empty"))
	}
	return args, nil
}

// idsHint says where to find the id of an invocation. restore and unland take only those that have ended, which @ does not
// name.
func idsHint(c *cli.Context) string {
	if c.Command.Name == "restore" || c.Command.Name == "unland" {
		return "'git agency ls --all' lists the ids, also of ended invocations"
	}
	return "'git agency ls' lists the ids; @ is the newest one"
}

// OptionalArg returns the only positional argument, or "" if there is none.
func OptionalArg(c *cli.Context) (string, error) {
	args, err := PositionalArgs(c, 0, 1)
	if err != nil || len(args) == 0 {
		return "", err
	}
	return args[0], nil
}
