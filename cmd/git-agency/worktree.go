package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) worktreeCommand() *cli.Command {
	return &cli.Command{
		Name:      "worktree",
		Usage:     "create, list and archive integration worktrees",
		UsageText: "git agency worktree (create|adopt|ls|show|path|rm) [<options>]",
		Subcommands: []*cli.Command{
			t.worktreeCreateCommand(),
			t.worktreeAdoptCommand(),
			t.worktreeLsCommand(),
			t.worktreeShowCommand(),
			t.worktreePathCommand(),
			t.worktreeRmCommand(),
		},
	}
}

// worktreeFields returns the fields of a worktree, for --porcelain and for 'worktree show'.
func worktreeFields(w gitagency.Worktree) []field {
	return []field{
		{"worktree", w.ID, false},
		{"name", w.Name, true},
		{"path", w.TreePath, true},
		{"branch", w.Branch, true},
		{"parent", w.ParentBranch, true},
		{"created", w.CreatedAt.Format(time.RFC3339), true},
		{"state", w.State, true},
		{"broken", w.BrokenReason, true},
	}
}
