package main

import "github.com/urfave/cli/v2"

func (t *tool) snapshotCommand() *cli.Command {
	return &cli.Command{
		Name:      "snapshot",
		Usage:     "take the state of a sandbox, and go back to it",
		UsageText: "git agency snapshot (create | rollback) [<options>]",
		Subcommands: []*cli.Command{
			t.snapshotCreateCommand(),
			t.snapshotRollbackCommand(),
		},
	}
}
