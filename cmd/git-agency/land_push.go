package main

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// planPush returns where to push each worktree's branch, or nil without --push.
func (t *tool) planPush(c *cli.Context, repo *gitagency.Repository, worktrees ...string) ([]gitagency.PushPlan, error) {
	if !c.Bool("push") {
		return nil, nil
	}
	return repo.PlanPush(c.Context, gitagency.PushRequest{
		Worktrees: worktrees, Remote: c.String("remote"), Unlanding: c.Command.Name == "unland",
		Verify: c.String("verify"), NoVerify: c.Bool("no-verify"), Output: t.rawStderr, Force: t.secondInterrupt,
	})
}

// pushLanded pushes the branch of each plan, and records the outcome in the results that landed there.
func (t *tool) pushLanded(c *cli.Context, repo *gitagency.Repository, plans []gitagency.PushPlan, results []landOutput) error {
	for i, plan := range plans {
		ids := idsLandedIn(plan.Worktree, results)
		if c.Bool("dry-run") {
			t.reportPush("would push", plan)
		}
		var pushed gitagency.PushResult
		var err error
		if !c.Bool("dry-run") {
			pushed, err = repo.Push(c.Context, plan, ids...)
		}
		if pushed.Merged {
			fmt.Fprintln(t.stderr, term.Printable(fmt.Sprintf("merged new commits of %s/%s into %s", plan.Remote, plan.RemoteBranch, plan.Branch)))
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
			fmt.Fprintln(t.stderr, term.Printable(fmt.Sprintf("%s has all of %s", plan.Remote, plan.Branch)))
		default:
			t.reportPush("pushed", plan)
		}
	}
	return nil
}

// idsLandedIn returns the ids of the invocations that landed in a worktree.
func idsLandedIn(worktree string, results []landOutput) []string {
	ids := []string{}
	for _, l := range results {
		if l.worktreeID == worktree && l.Commit != "" {
			ids = append(ids, l.Invocation)
		}
	}
	return ids
}

// warnUnpushed warns of each branch that was to be pushed and was not, because of an error elsewhere.
func (t *tool) warnUnpushed(c *cli.Context, plans []gitagency.PushPlan, results []landOutput) {
	for _, plan := range plans {
		if ids := idsLandedIn(plan.Worktree, results); len(ids) > 0 && !c.Bool("dry-run") {
			what := "the landing on"
			if c.Command.Name == "unland" {
				what = "the revert on"
			}
			t.warn(fmt.Sprintf("%s %s is not pushed to %s", what, plan.Branch, plan.Remote))
			t.printHint("this pushes it" + t.pushRetryCommand(c, plan, ids))
		}
	}
}

// pushRetryCommand returns the command that pushes a branch again, as the end of a hint. Settings given with -c are
// not repeated, since they may be secret.
func (t *tool) pushRetryCommand(c *cli.Context, plan gitagency.PushPlan, ids []string) string {
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
	if t.getenv("GIT_CONFIG_PARAMETERS") != "" {
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

func (t *tool) reportPush(did string, plan gitagency.PushPlan) {
	as := ""
	if plan.RemoteBranch != plan.Branch {
		as = " as " + plan.RemoteBranch
	}
	fmt.Fprintln(t.stderr, term.Printable(fmt.Sprintf("%s %s to %s%s", did, plan.Branch, plan.Remote, as)))
}
