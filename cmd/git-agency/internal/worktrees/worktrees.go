// Package worktrees has the commands of integration worktrees, the subcommands of worktree. As in package main, each has a
// file named after it: its flags, the request that it passes to package gitagency, and the output.
package worktrees

import (
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// Commands builds the commands of this package for one run of git-agency.
type Commands struct{ *program.Program }

// Worktree builds the command of integration worktrees, with its subcommands.
func (t Commands) Worktree() *cli.Command {
	return &cli.Command{
		Name:      "worktree",
		Usage:     "create, list and archive integration worktrees",
		UsageText: "git agency worktree (create|adopt|finish|ls|show|path|rm) [<options>]",
		Subcommands: []*cli.Command{
			t.createCommand(),
			t.adoptCommand(),
			t.finishCommand(),
			t.lsCommand(),
			t.showCommand(),
			t.pathCommand(),
			t.rmCommand(),
		},
	}
}

// openForRemoval opens the repository for a command that removes the tree of a worktree, which may be the current directory,
// and returns the <wt> of the command line.
func (t Commands) openForRemoval(c *cli.Context) (repo *gitagency.Repository, query, dir string, err error) {
	if query, err = program.OptionalArg(c); err != nil {
		return nil, "", "", err
	}
	if repo, err = t.OpenRepository(c); err != nil {
		return nil, "", "", err
	}
	dir, err = t.CurrentDir()
	return repo, query, dir, err
}

// Fields returns the fields of a worktree, for --porcelain and for 'worktree show'.
func Fields(w gitagency.Worktree) []program.Field {
	return []program.Field{
		{Key: "worktree", Value: w.ID},
		{Key: "name", Value: w.Name, Optional: true},
		{Key: "path", Value: w.TreePath, Optional: true},
		{Key: "branch", Value: w.Branch, Optional: true},
		{Key: "checked-out", Value: w.CheckedOut, Optional: true},
		{Key: "parent", Value: w.ParentBranch, Optional: true},
		{Key: "created", Value: w.CreatedAt.Format(time.RFC3339), Optional: true},
		{Key: "state", Value: w.State, Optional: true},
		{Key: "broken", Value: w.BrokenReason, Optional: true},
	}
}
