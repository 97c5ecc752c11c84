package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
)

func (t *tool) restoreCommand() *cli.Command {
	return &cli.Command{
		Name:      "restore",
		Usage:     "create a sandbox with the content of an ended invocation",
		UsageText: "git agency restore <id>",
		Description: `Creates a sandbox with the content of <id>, which was discarded or landed and is not pruned yet: its
commits, its staged, changed and untracked files, and the files of its archive. The new invocation has the
name, primitives, limits, grants and base commit of <id>, which stays as it is. An operation in
progress, such as a merge, is not restored; sockets and devices are not created again.

Exit status: 0 created; 1 failed, nothing changed; 3 no such invocation or worktree; 4 broken; 5 refused
for safety; 75 locked; 129 usage; 130 or 143 interrupted, rolled back first.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag()...),
		Action: func(c *cli.Context) error {
			args, err := program.PositionalArgs(c, 1, 1)
			if err != nil {
				return err
			}
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			ended, err := repo.Invocation(args[0])
			if err != nil {
				return err
			}
			inv, err := repo.Restore(c.Context, ended.ID)
			if err != nil {
				return err
			}
			fmt.Fprintf(t.Stderr, "restored %s as %s\n", ended.ID, inv.ID)
			return t.reportStarted(c, inv)
		},
	}
}
