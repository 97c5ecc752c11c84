package landing

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// Reject builds the command that rejects submitted work.
func (t Commands) Reject() *cli.Command {
	return &cli.Command{
		Name:      "reject",
		Usage:     "reject submitted work, with a reason",
		UsageText: "git agency reject <id> -m <reason>",
		Description: `Takes the work of a sandbox out of review. The sandbox does not change. 'show' prints the reason, and
'submit' puts it back into review. 'resume' hands the reason to the agent. Rejected work can still be landed
by its id, unless agency.requireReview is set.

Exit status: 0 rejected; 1 failed, or it is not in review; 3 no such invocation; 4 broken; 75 locked; 129
usage.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(
			&cli.StringFlag{Name: "message", Aliases: []string{"m"}, Usage: "the `REASON`, required"},
		)...),
		Action: func(c *cli.Context) error {
			args, err := program.PositionalArgs(c, 1, 1)
			if err != nil {
				return err
			}
			if !c.IsSet("message") {
				return program.NewUsageError(c, fmt.Errorf("say why, with -m"))
			}
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			r, err := repo.Reject(c.Context, gitagency.RejectRequest{Invocation: args[0], Reason: c.String("message")})
			if err != nil {
				return err
			}
			fmt.Fprintf(t.Stderr, "rejected %s; its sandbox is as it was\n", r.ID)
			if inv, err := repo.Invocation(r.ID); err == nil && inv.SessionID != "" {
				t.PrintHint("to hand the reason to its agent: git agency resume " + r.ID)
			}
			if c.Bool("json") {
				return t.PrintJSON(r)
			}
			return nil
		},
	}
}
