package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) snapshotRollbackCommand() *cli.Command {
	return &cli.Command{
		Name:      "rollback",
		Usage:     "take a sandbox back to a snapshot",
		UsageText: "git agency snapshot rollback <id> <snapshot>",
		Description: `Makes the sandbox what it was: its files, what is staged, HEAD and its branch, and a merge or rebase
that was under way. Files that came later go. What no snapshot holds stays: files that git ignores,
repositories inside the sandbox, files that were left out.

The state that it leaves is snapshotted first, with whatever is in the way of the other, so that a
rollback can be taken back by another; standard error says how. It is refused while commands run in
the sandbox. One that was killed half-way is finished by the next command that works in the sandbox.

A snapshot is its commit, in full or a unique prefix, or <id>/<n>.

Exit status: 0 done, or it was in that state; 1 failed, or refused because of what runs there or is in
the way: nothing changed, unless the message says that it is half-way; 3 no such invocation or
snapshot; 4 broken; 5 refused for safety; 75 locked; 129 usage; 130 or 143 interrupted, undone first.`,
		Flags: withRepositoryLockFlag(withJSONFlag()...),
		Action: func(c *cli.Context) error {
			args, err := positionalArgs(c, 2, 2)
			if err != nil {
				return err
			}
			sandbox, err := t.openSandbox(c, args[0])
			if err != nil {
				return err
			}
			rolled, err := sandbox.Rollback(c.Context, gitagency.RollbackRequest{Snapshot: args[1]})
			if err != nil {
				return err
			}
			t.reportRollback(rolled)
			if c.Bool("json") {
				return t.printJSON(rolled)
			}
			return t.printLine(rolled.Snapshot)
		},
	}
}

// reportRollback prints the result of a rollback and the command that undoes it.
func (t *tool) reportRollback(r gitagency.RollbackResult) {
	if r.Already {
		fmt.Fprintf(t.stderr, "%s is as in %s already; nothing changed\n", r.Invocation, r.Name)
		return
	}
	if r.DetachedFrom != "" {
		t.warn("HEAD was on " + r.DetachedFrom + ", which is elsewhere now; it is detached at the commit it was at")
	}
	fmt.Fprintf(t.stderr, "%s is as in %s: %s came back, %d changed, %d went\n", r.Invocation, r.Name, pluralize(r.Added, "file", "files"), r.Changed, r.Removed)
	fmt.Fprintf(t.stderr, "%s to take it back, type 'git agency snapshot rollback %s %s'\n", t.paintPrefix("hint:"), r.Invocation, r.LeftName)
}
