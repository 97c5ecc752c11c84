package main

import "github.com/urfave/cli/v2"

func (t *tool) worktreePathCommand() *cli.Command {
	return &cli.Command{
		Name:      "path",
		Usage:     "print the path of an integration worktree",
		UsageText: "git agency worktree path [<wt>]",
		Description: `<wt> is a name, an id or a unique prefix of one; without it, the worktree that holds the
current directory.

Exit status: 0 printed; 3 no such worktree; 4 printed, but it is broken; 129 usage.`,
		Flags: jsonFlag(),
		Action: func(c *cli.Context) error {
			query, err := optional(c)
			if err != nil {
				return err
			}
			repo, err := t.open(c)
			if err != nil {
				return err
			}
			w, err := repo.Worktree(query)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				err = t.printJSON(map[string]string{"tree_path": w.TreePath})
			} else {
				err = t.printPath(w.TreePath)
			}
			if err != nil {
				return err
			}
			return w.Err()
		},
	}
}
