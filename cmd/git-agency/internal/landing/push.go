package landing

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// planPush returns where to push each branch of a request, or nil without --push. It fills in the rest of the request.
func (t Commands) planPush(c *cli.Context, repo *gitagency.Repository, req gitagency.PushRequest) ([]gitagency.PushPlan, error) {
	if !c.Bool("push") {
		return nil, nil
	}
	req.Remote, req.Unlanding = c.String("remote"), c.Command.Name == "unland"
	req.Verify, req.NoVerify, req.Output, req.Force = c.String("verify"), c.Bool("no-verify"), t.RawStderr, t.SecondInterrupt
	return repo.PlanPush(c.Context, req)
}

// pushLanded pushes the branch of each plan, and records the outcome in the results that landed there.
func (t Commands) pushLanded(c *cli.Context, repo *gitagency.Repository, plans []gitagency.PushPlan, results []landOutput) error {
	for i, plan := range plans {
		ids := idsLandedOn(plan.Branch, results)
		if c.Bool("dry-run") {
			t.reportPush("would push", plan)
		}
		var pushed gitagency.PushResult
		var err error
		if !c.Bool("dry-run") {
			pushed, err = repo.Push(c.Context, plan, ids...)
		}
		if pushed.Merged {
			fmt.Fprintln(t.Stderr, term.Printable(fmt.Sprintf("merged new commits of %s/%s into %s", plan.Remote, plan.RemoteBranch, plan.Branch)))
		}
		for i := range results {
			if l := &results[i]; slices.Contains(ids, l.Invocation) {
				l.Pushed, l.Remote, l.PushTries, l.IntegrationCommit = err == nil && !c.Bool("dry-run"), plan.Remote, pushed.Tries, pushed.Commit
				if err != nil {
					l.Error = err.Error()
				}
			}
		}
		if err != nil {
			t.warnUnpushed(c, plans[i+1:], results)
			return &pushError{err, t.pushRetryCommand(c, plan, ids)}
		}
		switch {
		case c.Bool("dry-run"):
		case pushed.UpToDate:
			fmt.Fprintln(t.Stderr, term.Printable(fmt.Sprintf("%s has all of %s", plan.Remote, plan.Branch)))
		default:
			t.reportPush("pushed", plan)
		}
	}
	return nil
}

// idsLandedOn returns the ids of the invocations that landed on a branch.
func idsLandedOn(branch string, results []landOutput) []string {
	ids := []string{}
	for _, l := range results {
		if l.Branch == branch && l.Commit != "" {
			ids = append(ids, l.Invocation)
		}
	}
	return ids
}

// warnUnpushed warns of each branch that was to be pushed and was not, because of an error elsewhere.
func (t Commands) warnUnpushed(c *cli.Context, plans []gitagency.PushPlan, results []landOutput) {
	for _, plan := range plans {
		if ids := idsLandedOn(plan.Branch, results); len(ids) > 0 && !c.Bool("dry-run") {
			what := "the landing on"
			if c.Command.Name == "unland" {
				what = "the revert on"
			}
			t.Warn(fmt.Sprintf("%s %s is not pushed to %s", what, plan.Branch, plan.Remote))
			t.PrintHint("this pushes it" + t.pushRetryCommand(c, plan, ids))
		}
	}
}

// pushRetryCommand returns the command that pushes a branch again, as the end of a hint. Settings given with -c are
// not repeated, since they may be secret.
func (t Commands) pushRetryCommand(c *cli.Context, plan gitagency.PushPlan, ids []string) string {
	what := "--all-ready " + plan.Worktree
	if len(ids) > 0 {
		what = ids[len(ids)-1]
	}
	words := c.Command.Name + " " + what + " --push --remote " + quote.Shell(plan.Remote)
	switch {
	case c.IsSet("verify"): // commits of others are merged before the push and verified too
		words += " --verify " + quote.Shell(c.String("verify"))
	case c.Bool("no-verify"):
		words += " --no-verify"
	}
	if t.Getenv("GIT_CONFIG_PARAMETERS") != "" {
		return ", with the settings that -c gave: git -c … agency " + words
	}
	return ": git agency " + words
}

// pushError is a failed push with the command that tries it again.
type pushError struct {
	error
	retry string
}

func (e *pushError) Unwrap() error { return e.error }

func (t Commands) reportPush(did string, plan gitagency.PushPlan) {
	as := ""
	if plan.RemoteBranch != plan.Branch {
		as = " as " + plan.RemoteBranch
	}
	fmt.Fprintln(t.Stderr, t.PaintSuccess(did)+term.Printable(fmt.Sprintf(" %s to %s%s", plan.Branch, plan.Remote, as)))
}
