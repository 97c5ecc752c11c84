package worktrees

import (
	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

func (t Commands) createCommand() *cli.Command {
	return &cli.Command{
		Name:      "create",
		Usage:     "create an integration worktree and print its path",
		UsageText: "git agency worktree create <name> [--from <commit-ish>]",
		Description: `Creates a branch agency/<name>-<last four digits of the id>, a tree for it in the data directory, a
marker and a record: all or nothing. A name has 2 to 40 characters of a-z, 0-9 and -, and does not begin
with -.

Exit status: 0 created; 1 failed, nothing changed; 4 the repository was moved; 5 refused for safety; 75
locked; 129 usage.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(&cli.StringFlag{Name: "from", Usage: "start from `COMMIT`", DefaultText: "HEAD"})...),
		Action: func(c *cli.Context) error {
			args, err := program.PositionalArgs(c, 1, 1)
			if err != nil {
				return err
			}
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			w, err := repo.CreateWorktree(c.Context, gitagency.CreateWorktreeRequest{Name: args[0], From: c.String("from")})
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return t.PrintJSON(w)
			}
			return t.PrintLine(w.TreePath)
		},
	}
}
