package main

import (
	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) snapshotCheckoutCommand() *cli.Command {
	return &cli.Command{
		Name:      "checkout",
		Usage:     "copy a snapshot into a new directory and print its path",
		UsageText: "git agency snapshot checkout <snapshot> <dir> [--json]",
		Description: `Writes the files of a snapshot to the new directory <dir>, without .git and marker, all or nothing. <dir>
must not exist or be empty, and must not overlap a worktree, a sandbox or a git directory. Your filters
run, hooks do not; a submodule becomes an empty directory. <snapshot> is its commit, in full or as a unique
prefix, or <id>/<n>.

Exit status: 0 copied; 1 failed, nothing changed; 3 no such snapshot; 4 the repository was moved; 5
refused for safety, such as an overlap; 129 usage; 130 or 143 interrupted, rolled back first.`,
		Flags: program.WithJSONFlag(),
		Action: func(c *cli.Context) error {
			args, err := program.PositionalArgs(c, 2, 2)
			if err != nil {
				return err
			}
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			checkout, err := repo.CheckoutSnapshot(c.Context, gitagency.CheckoutRequest{Snapshot: args[0], Dir: args[1]})
			if err != nil {
				return &snapshotCheckoutError{err}
			}
			if c.Bool("json") {
				return t.PrintJSON(checkout)
			}
			return t.PrintLine(checkout.Path)
		},
	}
}

// snapshotCheckoutError marks any error of 'snapshot checkout', for its hints.
type snapshotCheckoutError struct{ err error }

func (e *snapshotCheckoutError) Error() string { return e.err.Error() }
func (e *snapshotCheckoutError) Unwrap() error { return e.err }
