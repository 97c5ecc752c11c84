package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) submitCommand() *cli.Command {
	return &cli.Command{
		Name:      "submit",
		Usage:     "say that work is done and may be reviewed",
		UsageText: "git agency submit <id>... [-m <note>]",
		Description: `Writes down that the work of a sandbox is done, and which commit that is: the one that its HEAD is at.
'ls' and 'show' say that it is in review then; 'reject' gives it back. The sandbox stays as it is, and
commands go on in it. What is in no commit is listed and refused, and so is a sandbox without any work,
or whose commits change nothing.

Submitting twice is fine. What waits keeps its place among the others, unless there are new commits:
then these are submitted, and it goes to the end. With agency.requireReview nothing else can land than
the commit that was submitted.

Exit status: 0 submitted; 1 failed, there is work in no commit or no work at all, it was landed or
discarded, or its integration worktree archived; 3 no such invocation; 4 broken; 5 refused for safety;
75 locked; 129 usage.`,
		Flags: withRepositoryLockFlag(withJSONFlag(
			&cli.StringFlag{Name: "message", Aliases: []string{"m"}, Usage: "tell whoever reviews it: `NOTE`"},
		)...),
		Action: func(c *cli.Context) error {
			repo, named, err := t.openForInvocations(c)
			if err != nil {
				return err
			}
			var failed error // invocations before the failed one stay submitted
			results := []gitagency.SubmitResult{}
			for _, inv := range named {
				s, err := repo.Submit(c.Context, gitagency.SubmitRequest{Invocation: inv.ID, Note: c.String("message")})
				if err != nil {
					failed = err
					break
				}
				results = append(results, s)
				t.reportSubmitted(s)
			}
			if c.Bool("json") {
				return errors.Join(failed, t.printJSON(results))
			}
			return failed
		},
	}
}

func (t *tool) reportSubmitted(s gitagency.SubmitResult) {
	switch {
	case s.Already:
		fmt.Fprintf(t.stderr, "%s is in review already, at %s\n", s.ID, shortOID(s.Commit))
	case s.CommitChanged:
		fmt.Fprintf(t.stderr, "submitted %s again: it is at %s now\n", s.ID, shortOID(s.Commit))
	default:
		fmt.Fprintf(t.stderr, "submitted %s at %s\n", s.ID, shortOID(s.Commit))
	}
}
