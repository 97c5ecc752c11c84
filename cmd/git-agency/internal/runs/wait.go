package runs

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// Wait builds the command that waits for runs.
func (t Commands) Wait() *cli.Command {
	return &cli.Command{
		Name:      "wait",
		Usage:     "wait until runs have ended",
		UsageText: "git agency wait [--any] [<id>...] [--json]",
		Description: `Waits until the runs of all given invocations have ended, or with --any one of them; without <id>, those of
all agents that run now or wait for an answer. Prints the id and the status of each that has ended. An agent
that asks and waits for the answer while it runs is not waited for: it is printed as blocked.

Exit status: 0 all of these finished; 7 one asks a question; 1 another status, or no agent was run in it; 3 no
such invocation; 129 usage; 130, 143 interrupted.`,
		Flags: program.WithJSONFlag(
			&cli.BoolFlag{Name: "any", Usage: "return when one of them has ended"},
		),
		Action: t.wait,
	}
}

func (t Commands) wait(c *cli.Context) error {
	args, err := program.PositionalArgs(c, 0, -1)
	if err != nil {
		return err
	}
	repo, err := t.OpenRepository(c)
	if err != nil {
		return err
	}
	waited, err := runsToWaitFor(c, repo, args)
	if err != nil {
		return err
	}
	if len(waited) == 0 {
		fmt.Fprintln(t.Stderr, "no agent runs")
	}
	ended := make(chan gitagency.Invocation)
	failed := make(chan error)
	for _, inv := range waited {
		go func() {
			if inv, err := repo.WaitRun(c.Context, inv.ID); err != nil {
				failed <- err
			} else {
				ended <- inv
			}
		}()
	}
	code, results := 0, []gitagency.Invocation{}
	for range waited {
		select {
		case err := <-failed:
			return err
		case inv := <-ended:
			status := inv.Status
			if asksWhileRunning(inv) {
				status = inv.State
			}
			results, code = append(results, inv), worseExit(code, status)
			if !c.Bool("json") {
				if _, err := fmt.Fprintf(t.Stdout, "%s %s\n", inv.ID, status); err != nil {
					return err
				}
				if err := t.Stdout.Flush(); err != nil {
					return err
				}
			}
		}
		if c.Bool("any") {
			break
		}
	}
	if c.Bool("json") {
		if err := t.PrintJSON(results); err != nil {
			return err
		}
	}
	if code != 0 {
		return &program.ChildError{Code: code}
	}
	return nil
}

// runsToWaitFor returns the named invocations, or all whose agent works or waits for an answer.
func runsToWaitFor(c *cli.Context, repo *gitagency.Repository, args []string) ([]gitagency.Invocation, error) {
	var found []gitagency.Invocation
	for _, query := range args {
		inv, err := repo.Invocation(query)
		if err != nil {
			return nil, err
		}
		found = append(found, inv)
	}
	if len(args) > 0 {
		return found, nil
	}
	all, err := repo.Invocations(c.Context, gitagency.ListRequest{})
	for _, inv := range all {
		if isRunning(inv) || waitsForAnswer(inv) {
			found = append(found, inv)
		}
	}
	return found, err
}
