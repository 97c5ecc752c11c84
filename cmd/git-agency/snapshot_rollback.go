package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) snapshotRollbackCommand() *cli.Command {
	return &cli.Command{
		Name:      "rollback",
		Usage:     "restore a sandbox to a snapshot",
		UsageText: "git agency snapshot rollback <id> <snapshot>",
		Description: `Restores the sandbox to the state of a snapshot: files, index, HEAD, branch, and a merge or rebase in
progress. Later files are removed. Content that no snapshot holds stays: ignored files, repositories inside
the sandbox, and files left out as credentials.

The current state is snapshotted first, with files that are in the way, and standard error prints the
command that returns to it. It is refused while commands run in the sandbox. A killed rollback is completed
by the next command that works in the sandbox.

<snapshot> is its commit, in full or as a unique prefix, or <id>/<n>.

Exit status: 0 done, or it was in that state; 1 failed, or refused because of running commands or paths
in the way: nothing changed, unless the message says that it is half-way; 3 no such invocation or
snapshot; 4 broken; 5 refused for safety; 75 locked; 129 usage; 130 or 143 interrupted, undone first.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag()...),
		Action: func(c *cli.Context) error {
			args, err := program.PositionalArgs(c, 2, 2)
			if err != nil {
				return err
			}
			sandbox, err := t.OpenSandbox(c, args[0])
			if err != nil {
				return err
			}
			rolled, err := sandbox.Rollback(c.Context, gitagency.RollbackRequest{Snapshot: args[1]})
			if err != nil {
				return err
			}
			t.reportRollback(rolled)
			if c.Bool("json") {
				return t.PrintJSON(rolled)
			}
			return t.PrintLine(rolled.Snapshot)
		},
	}
}

// reportRollback prints the result of a rollback and the command that undoes it.
func (t *tool) reportRollback(r gitagency.RollbackResult) {
	if r.Already {
		fmt.Fprintf(t.Stderr, "%s is already in the state of %s; nothing changed\n", r.Invocation, r.Name)
		return
	}
	if r.DetachedFrom != "" {
		t.Warn("HEAD was on " + r.DetachedFrom + ", which points to another commit now; HEAD is detached at the commit of the snapshot")
	}
	fmt.Fprintf(t.Stderr, "rolled %s back to %s: %s restored, %d changed, %d removed\n", r.Invocation, r.Name, format.Count(r.Added, "file", "files"), r.Changed, r.Removed)
	fmt.Fprintf(t.Stderr, "%s to undo this, type 'git agency snapshot rollback %s %s'\n", t.PaintPrefix("hint:"), r.Invocation, r.LeftName)
}
