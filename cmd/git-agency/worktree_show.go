package main

import "github.com/urfave/cli/v2"

func (t *tool) worktreeShowCommand() *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show one integration worktree",
		UsageText: "git agency worktree show [<wt>] [--json | --porcelain [-z]]",
		Description: `<wt> is a name, an id or a unique prefix of one; without it, the worktree that holds the
current directory.

Exit status: 0 shown; 3 no such worktree; 4 shown, but it is broken; 5 not in an
integration worktree; 129 usage.`,
		Flags: withListingFlags(),
		Action: func(c *cli.Context) error {
			query, err := optionalArg(c)
			if err != nil {
				return err
			}
			if err := checkOutputFlags(c); err != nil {
				return err
			}
			repo, err := t.openRepository(c)
			if err != nil {
				return err
			}
			w, err := repo.Worktree(query)
			if err != nil {
				return err
			}
			return printOne(t, c, w, worktreeFields, worktreeFields)
		},
	}
}
