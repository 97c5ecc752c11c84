package worktrees

import (
	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
)

func (t Commands) pathCommand() *cli.Command {
	return &cli.Command{
		Name:      "path",
		Usage:     "print the path of an integration worktree",
		UsageText: "git agency worktree path [<wt>]",
		Description: `<wt> is a name, an id or a unique prefix of one; without it, the worktree that holds the
current directory.

Exit status: 0 printed; 1 it is archived and has no tree; 3 no such worktree; 4 printed, but it is
broken; 5 not in an integration worktree; 129 usage.`,
		Flags: program.WithJSONFlag(),
		Action: func(c *cli.Context) error {
			query, err := program.OptionalArg(c)
			if err != nil {
				return err
			}
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			w, err := repo.Worktree(query)
			if err != nil {
				return err
			}
			path, pathErr := w.Path()
			return t.PrintPath(c, "tree_path", path, pathErr)
		},
	}
}
