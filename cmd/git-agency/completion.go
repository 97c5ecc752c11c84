package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/complete"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
)

func (t *tool) completionCommand() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print the completion script for a shell",
		UsageText: "git agency completion (bash|zsh|fish)",
		Description: `The script completes 'git agency' and 'git-agency': commands, options, worktrees, invocations and snapshots.
Its first lines say where it belongs. Pressing TAB never runs a command and never changes anything.

Exit status: 0 printed; 129 usage.`,
		Action: func(c *cli.Context) error {
			args, err := program.PositionalArgs(c, 1, 1)
			if err != nil {
				return err
			}
			script, ok := complete.Script(args[0])
			if !ok {
				return program.NewUsageError(c, fmt.Errorf("there is no completion for %q, only for bash, zsh and fish", args[0]))
			}
			_, err = t.Stdout.Write(script)
			return err
		},
	}
}
