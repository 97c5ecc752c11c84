package main

import "github.com/urfave/cli/v2"

func (t *tool) worktreePathCommand() *cli.Command {
	return &cli.Command{
		Name:      "path",
		Usage:     "print the path of an integration worktree",
		UsageText: "git agency worktree path [<wt>]",
		Description: `<wt> is a name, an id or a unique prefix of one; without it, the worktree that holds the
current directory.

Exit status: 0 printed; 1 it is archived and has no tree; 3 no such worktree; 4 printed, but it is
broken; 5 not in an integration worktree; 129 usage.`,
		Flags: withJSONFlag(),
		Action: func(c *cli.Context) error {
			query, err := optionalArg(c)
			if err != nil {
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
			path, pathErr := w.Path()
			return t.printPath(c, "tree_path", path, pathErr)
		},
	}
}
