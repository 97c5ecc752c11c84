package main

import (
	"github.com/urfave/cli/v2"
)

func (t *tool) helpCommand() *cli.Command {
	return &cli.Command{
		Name:      "help",
		Usage:     "show help for a command",
		UsageText: "git agency help [<command> [<subcommand>]]",
		Action: func(c *cli.Context) error {
			args, err := arguments(c, 0, 2)
			if err != nil {
				return err
			}
			// A fresh app: urfave changes the one it runs.
			app, words := t.app(), []string{"git-agency"}
			return app.RunContext(c.Context, append(append(words, args...), "--help"))
		},
	}
}
