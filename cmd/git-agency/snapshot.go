package main

import "github.com/urfave/cli/v2"

func (t *tool) snapshotCommand() *cli.Command {
	return &cli.Command{
		Name:      "snapshot",
		Usage:     "take, list and use snapshots of sandboxes",
		UsageText: "git agency snapshot (create|ls|verify|checkout|rollback) [<options>]",
		Subcommands: []*cli.Command{
			t.snapshotCreateCommand(),
			t.snapshotLsCommand(),
			t.snapshotVerifyCommand(),
			t.snapshotCheckoutCommand(),
			t.snapshotRollbackCommand(),
		},
	}
}
