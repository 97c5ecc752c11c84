package program

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
)

// PositionalArgs returns the positional arguments, or a usage error unless there are least to most of them; a negative
// most means no limit.
func PositionalArgs(c *cli.Context, least, most int) ([]string, error) {
	args := c.Args().Slice()
	switch {
	case len(args) < least:
		return nil, NewUsageError(c, fmt.Errorf("no %s given", cmp.Or(argv.MissingArgument(c.Command.UsageText, len(args)), "further argument")))
	case most >= 0 && len(args) > most:
		return nil, NewUsageError(c, fmt.Errorf("unexpected argument %q", args[most]))
	case slices.Contains(args, ""):
		return nil, NewUsageError(c, errors.New("an argument is empty"))
	}
	return args, nil
}

// OptionalArg returns the only positional argument, or "" if there is none.
func OptionalArg(c *cli.Context) (string, error) {
	args, err := PositionalArgs(c, 0, 1)
	if err != nil || len(args) == 0 {
		return "", err
	}
	return args[0], nil
}
