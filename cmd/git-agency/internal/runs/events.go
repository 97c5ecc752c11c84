package runs

import (
	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// Events builds the command that prints the events of all invocations.
func (t Commands) Events() *cli.Command {
	return &cli.Command{
		Name:      "events",
		Usage:     "print the events of all invocations as JSON lines",
		UsageText: "git agency events [<id>] [--follow] [--json]",
		Description: `Prints the history of all invocations, or of one, in the order of time: one JSON object in each line, with at
least time, invocation_id and event. With --follow it goes on with the events that are added, until it is
interrupted.

Exit status: 0 printed; 3 no such invocation; 129 usage; 130, 143 interrupted.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on with events that are added"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON lines, which is the default"},
		},
		Action: func(c *cli.Context) error {
			query, err := program.OptionalArg(c)
			if err != nil {
				return err
			}
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			return repo.Events(c.Context, gitagency.EventsRequest{ID: query, Follow: c.Bool("follow"), Each: func(line []byte) error {
				if _, err := t.Stdout.Write(append(line, '\n')); err != nil {
					return err
				}
				if c.Bool("follow") {
					return t.Stdout.Flush()
				}
				return nil
			}})
		},
	}
}
