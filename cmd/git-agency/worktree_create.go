package main

import (
	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) worktreeCreateCommand() *cli.Command {
	return &cli.Command{
		Name:      "create",
		Usage:     "make a new integration worktree and print its path",
		UsageText: "git agency worktree create <name> [--from <commit-ish>]",
		Description: `Makes a branch agency/<name>-<last four digits of the id>, a tree for it in the data
directory, a marker and a record: all of it or nothing. Names are 2 to 40 of a-z, 0-9 and -.

Exit status: 0 made; 1 failed, nothing changed; 5 refused for safety; 75 locked; 129 usage.`,
		Flags: withRepositoryLockFlag(withJSONFlag(&cli.StringFlag{Name: "from", Usage: "start from `COMMIT`", DefaultText: "HEAD"})...),
		Action: func(c *cli.Context) error {
			args, err := positionalArgs(c, 1, 1)
			if err != nil {
				return err
			}
			repo, err := t.openRepository(c)
			if err != nil {
				return err
			}
			w, err := repo.CreateWorktree(c.Context, gitagency.CreateWorktreeRequest{Name: args[0], From: c.String("from")})
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return t.printJSON(w)
			}
			return t.printLine(w.TreePath)
		},
	}
}
