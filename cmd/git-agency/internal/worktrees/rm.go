package worktrees

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

func (t Commands) rmCommand() *cli.Command {
	return &cli.Command{
		Name:      "rm",
		Usage:     "archive an integration worktree",
		UsageText: "git agency worktree rm [<wt>] [--force]",
		Description: `Removes the tree, and keeps the branch and the record. An adopted tree stays and only loses its marker. A
tree with uncommitted or untracked files, or with live sandboxes, needs --force; content that is in no
branch is then kept as refs/agency/trash/<id>.

Exit status: 0 archived; 1 failed or refused, nothing changed; 3 no such worktree; 4 broken;
5 not in an integration worktree; 75 locked; 129 usage.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "also when it is dirty or has live sandboxes"})...),
		Action: func(c *cli.Context) error {
			repo, query, dir, err := t.openForRemoval(c)
			if err != nil {
				return err
			}
			removed, err := repo.RemoveWorktree(c.Context, gitagency.RemoveWorktreeRequest{Worktree: query, Force: c.Bool("force")})
			if err != nil {
				return err
			}
			defer t.HintRemovedDir(repo, dir, nil)
			if c.Bool("json") {
				return t.PrintJSON(removed)
			}
			if removed.Undone {
				fmt.Fprintf(t.Stderr, "undid the interrupted creation of %s\n", removed.ID)
				return nil
			}
			fmt.Fprintf(t.Stderr, "archived %s (%s); its branch stays\n", removed.Name, removed.ID)
			if removed.TrashRef != "" {
				fmt.Fprintf(t.Stderr, "content that was in no branch is kept as %s\n", removed.TrashRef)
			}
			return nil
		},
	}
}
