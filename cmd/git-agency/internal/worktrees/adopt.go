package worktrees

import (
	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

func (t Commands) adoptCommand() *cli.Command {
	return &cli.Command{
		Name:      "adopt",
		Usage:     "make an existing worktree an integration worktree and print its id",
		UsageText: "git agency worktree adopt [<path>] [--name <name>]",
		Description: `Adds a marker and a record to an existing worktree of this repository, such as the main one, and changes
nothing else in it. The default <path> is the worktree that contains the current directory.

Exit status: 0 adopted; 1 failed, nothing changed; 4 the repository was moved; 5 refused for safety; 75
locked; 129 usage.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(&cli.StringFlag{Name: "name", Usage: "call it `NAME`", DefaultText: "after its branch"})...),
		Action: func(c *cli.Context) error {
			path, err := program.OptionalArg(c)
			if err != nil {
				return err
			}
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			w, err := repo.AdoptWorktree(c.Context, gitagency.AdoptWorktreeRequest{Path: path, Name: c.String("name")})
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return t.PrintJSON(w)
			}
			return t.PrintLine(w.ID)
		},
	}
}
