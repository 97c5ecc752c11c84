package main

import (
	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) worktreeLsCommand() *cli.Command {
	return &cli.Command{
		Name:      "ls",
		Aliases:   []string{"list"},
		Usage:     "list integration worktrees",
		UsageText: "git agency worktree ls [--all] [--json | --porcelain [-z]]",
		Description: `Lists the integration worktrees that are present, the oldest first.

Exit status: 0, whatever is found.`,
		Flags: withListingFlags(&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "also those that are archived or broken"}),
		Action: func(c *cli.Context) error {
			if err := checkListingArgs(c); err != nil {
				return err
			}
			repo, err := t.openRepository(c)
			if err != nil {
				return err
			}
			worktrees, err := repo.Worktrees(c.Bool("all"))
			if err != nil {
				return err
			}
			return printList(t, c, worktrees, worktreeFields,
				[]string{"ID", "NAME", "BRANCH", "STATE", "CREATED", "PATH"},
				func(w gitagency.Worktree) []string {
					state := w.State
					if w.Broken {
						state = "broken: " + w.BrokenReason
					}
					return []string{w.ID, w.Name, w.Branch, state, ago(t.now(), w.CreatedAt), w.TreePath}
				})
		},
	}
}
