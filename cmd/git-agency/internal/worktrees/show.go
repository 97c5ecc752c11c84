package worktrees

import (
	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
)

func (t Commands) showCommand() *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show one integration worktree",
		UsageText: "git agency worktree show [<wt>] [--json | --porcelain [-z]]",
		Description: `<wt> is a name, an id or a unique prefix of one; without it, the worktree that holds the
current directory.

Exit status: 0 shown; 3 no such worktree; 4 shown, but it is broken; 5 not in an
integration worktree; 129 usage.`,
		Flags: program.WithListingFlags(),
		Action: func(c *cli.Context) error {
			query, err := program.OptionalArg(c)
			if err != nil {
				return err
			}
			if err := program.CheckOutputFlags(c); err != nil {
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
			return program.PrintOne(t.Program, c, w, Fields, Fields)
		},
	}
}
