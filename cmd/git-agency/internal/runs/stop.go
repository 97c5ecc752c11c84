package runs

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// Stop builds the command that ends runs.
func (t Commands) Stop() *cli.Command {
	return &cli.Command{
		Name:      "stop",
		Usage:     "end the run of an agent",
		UsageText: "git agency stop <id>... [--json]",
		Description: `Ends the run of each invocation, and other commands in its sandbox: with SIGTERM, and with SIGKILL those that
are left after 5 seconds. The sandbox stays, with a last snapshot; 'git agency resume' lets the agent go on.

Exit status: 0 nothing runs there any more; 1 failed; 3 no such invocation; 75 it did not end in time; 129
usage.`,
		Flags: program.WithJSONFlag(),
		Action: func(c *cli.Context) error {
			repo, invocations, err := t.OpenForInvocations(c)
			if err != nil {
				return err
			}
			stopped := []gitagency.Invocation{}
			for _, inv := range invocations {
				ended, ran, err := repo.StopRun(c.Context, inv.ID)
				if err != nil {
					return err
				}
				if !ran {
					fmt.Fprintf(t.Stderr, "nothing runs in %s\n", inv.ID)
				}
				stopped = append(stopped, ended)
			}
			if c.Bool("json") {
				return t.PrintJSON(stopped)
			}
			return nil
		},
	}
}
