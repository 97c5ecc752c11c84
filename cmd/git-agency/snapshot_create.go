package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) snapshotCreateCommand() *cli.Command {
	return &cli.Command{
		Name:      "create",
		Usage:     "take the state of a sandbox and print the commit that holds it",
		UsageText: "git agency snapshot create <id> [-m <message>]",
		Description: `Writes everything that is in the sandbox, committed, staged, changed and untracked, as a commit, and
keeps that as refs/agency/snapshots/<id>/<n>; files that git ignores are not in it. Nothing in the
sandbox changes, neither files nor index, HEAD or branch, and commands may run in it meanwhile. When
nothing has changed since the last snapshot, that one is printed.

Exit status: 0 taken, or nothing has changed; 1 failed, or it has no sandbox any more; 3 no such
invocation; 4 broken; 5 refused for safety; 75 locked; 129 usage.`,
		Flags: changing(jsonFlag(&cli.StringFlag{
			Name: "message", Aliases: []string{"m"}, Usage: "say in the commit what the snapshot is: `MESSAGE`",
		})...),
		Action: func(c *cli.Context) error {
			args, err := arguments(c, 1, 1)
			if err != nil {
				return err
			}
			sandbox, err := t.sandbox(c, args[0])
			if err != nil {
				return err
			}
			snapshot, err := sandbox.TakeSnapshot(c.Context, gitagency.SnapshotRequest{Message: c.String("message")})
			if err != nil {
				return err
			}
			if !snapshot.Created {
				fmt.Fprintf(t.stderr, "nothing changed since snapshot %d\n", snapshot.Number)
			}
			if c.Bool("json") {
				return t.printJSON(snapshot)
			}
			return t.printLine(snapshot.ID)
		},
	}
}
