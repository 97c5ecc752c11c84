package landing

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

// Submit builds the command that submits work for review.
func (t Commands) Submit() *cli.Command {
	return &cli.Command{
		Name:      "submit",
		Usage:     "submit work for review",
		UsageText: "git agency submit [<id>...] [-m <note>]",
		Description: `Marks the work of a sandbox as ready for review, and records the commit of its HEAD. 'ls' and 'show' print
review; 'reject' takes it out of review. The sandbox does not change, and commands may run in it.
Uncommitted work is refused and listed, and so is a sandbox without work, or whose commits change nothing.

Work lands in the order of submission. A second 'submit' keeps its place; with new commits, it goes to the
end. With agency.requireReview only the submitted commit can land.

Exit status: 0 submitted; 1 failed, there is uncommitted work or no work at all, it was landed or
discarded, or its integration worktree was archived; 3 no such invocation; 4 broken; 5 refused for safety;
75 locked; 129 usage.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(
			&cli.StringFlag{Name: "message", Aliases: []string{"m"}, Usage: "a `NOTE` for the reviewer"},
		)...),
		Action: func(c *cli.Context) error {
			repo, named, err := t.OpenForOptionalInvocations(c)
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
				t.ReportSubmitted(s)
			}
			if c.Bool("json") {
				return errors.Join(failed, t.PrintJSON(results))
			}
			return failed
		},
	}
}

// ReportSubmitted prints the result of a submission.
func (t Commands) ReportSubmitted(s gitagency.SubmitResult) {
	switch {
	case s.Already:
		fmt.Fprintf(t.Stderr, "%s is in review already, at %s\n", s.ID, format.ShortOID(s.Commit))
	case s.CommitChanged:
		fmt.Fprintf(t.Stderr, "submitted %s again: it is at %s now\n", s.ID, format.ShortOID(s.Commit))
	default:
		fmt.Fprintf(t.Stderr, "submitted %s at %s\n", s.ID, format.ShortOID(s.Commit))
	}
}
