package main

import "github.com/urfave/cli/v2"

func (t *tool) snapshotCommand() *cli.Command {
	return &cli.Command{
		Name:      "snapshot",
		Usage:     "take the state of a sandbox",
		UsageText: "git agency snapshot create [<options>]",
		Subcommands: []*cli.Command{
			t.snapshotCreateCommand(),
		},
	}
}
