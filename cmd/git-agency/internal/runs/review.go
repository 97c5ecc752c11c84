package runs

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// ReviewActions are the functions of other commands that review uses; all are required. dir is the caller's directory.
type ReviewActions struct {
	Diff          func(c *cli.Context, repo *gitagency.Repository, id string, form gitagency.DiffForm) (isEmpty bool, err error)
	Land, Discard func(c *cli.Context, repo *gitagency.Repository, dir string, named []gitagency.Invocation) error
}

// Review builds the command that walks through the work that waits for a person.
func (t Commands) Review(actions ReviewActions) *cli.Command {
	return &cli.Command{
		Name:      "review",
		Usage:     "walk through the work that waits for you",
		UsageText: "git agency review [<id>...] [--json]",
		Description: `Shows one after the other, and asks what to do with each: agents that ask a question, submitted work,
finished runs with commits, and runs that failed, timed out or were stopped; or the given invocations. The
answers are

  d  show the diff           L  land
  t  show the task           j  reject, with a reason
  l  show the history        a  answer the question, and resume the agent
  o  show the agent's output r  resume the agent with a further task
  s  skip, also Enter        x  discard; 'restore' brings it back
  q  quit                    ?  list these answers

Resumed agents run detached. Where input or output is no terminal, it lists what waits, with the commands to
type.

Exit status: 0, whatever is found; 1 failed, or an invocation has ended; 3 no such invocation; 4 broken; 129
usage; 130 interrupted.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag()...),
		Action: func(c *cli.Context) error {
			t.Options.NoGitProbe = true // as the commands that it replaces
			repo, ids, err := t.openForReview(c)
			if err != nil {
				return err
			}
			waiting, err := listWaiting(c, repo, ids)
			switch {
			case err != nil:
				return err
			case c.Bool("json"):
				return t.PrintJSON(waiting)
			case len(waiting) == 0:
				fmt.Fprintln(t.Stderr, "nothing waits for you")
				return nil
			case !term.IsTerminal(os.Stdin) || !term.IsTerminal(t.RawStdout) || !term.InForeground(os.Stdin):
				return t.printWaiting(waiting)
			}
			dir, err := t.CurrentDir() // now, since a landing may remove it
			if err != nil {
				return err
			}
			t.NeverPage()
			w := &reviewWalk{Commands: t, c: c, repo: repo, dir: dir, actions: actions, input: newPromptReader(os.Stdin)}
			return w.walk(waiting)
		},
	}
}

// openForReview opens the repository and returns the ids of the named invocations, whose sandboxes exist.
func (t Commands) openForReview(c *cli.Context) (_ *gitagency.Repository, ids []string, err error) {
	args, err := program.PositionalArgs(c, 0, -1)
	if err != nil {
		return nil, nil, err
	}
	repo, err := t.OpenRepository(c)
	if err != nil {
		return nil, nil, err
	}
	for _, query := range args {
		inv, err := repo.Invocation(query)
		if err != nil {
			return nil, nil, err
		}
		if _, err := inv.Path(); err != nil {
			return nil, nil, err
		}
		ids = append(ids, inv.ID)
	}
	return repo, ids, nil
}

// listWaiting lists the invocations to review: those with the ids, or without ids all that wait for a person, in the order
// in which they are reviewed. Those that have ended meanwhile are left out.
func listWaiting(c *cli.Context, repo *gitagency.Repository, ids []string) ([]gitagency.Invocation, error) {
	all, err := repo.Invocations(c.Context, gitagency.ListRequest{Activity: true, Radar: true})
	if err != nil {
		return nil, err
	}
	waiting := []gitagency.Invocation{}
	for _, inv := range all {
		if slices.Contains(ids, inv.ID) || len(ids) == 0 && reviewRank(inv) > 0 {
			waiting = append(waiting, inv)
		}
	}
	slices.SortStableFunc(waiting, func(a, b gitagency.Invocation) int {
		return cmp.Or(
			slices.Index(ids, a.ID)-slices.Index(ids, b.ID), // zero without ids
			reviewRank(a)-reviewRank(b),
			waitsSince(a).Compare(waitsSince(b)))
	})
	return waiting, nil
}

// reviewRank returns the place of an invocation in a review; 0 for one that does not wait for a person.
func reviewRank(inv gitagency.Invocation) int {
	switch {
	case inv.Verifies != "" || inv.Running && !asksWhileRunning(inv):
	case inv.Question != "":
		return 1
	case inv.State == gitagency.StateReview:
		return 2
	case inv.State == gitagency.StatusFinished && (inv.Ahead == nil || *inv.Ahead > 0):
		return 3
	case slices.Contains([]string{gitagency.StatusFailed, gitagency.StatusTimedOut, gitagency.StatusStopped}, inv.State):
		return 4
	}
	return 0
}

// asksWhileRunning reports whether the agent of an invocation asks and waits for the answer while it runs.
func asksWhileRunning(inv gitagency.Invocation) bool {
	return inv.IsRunning() && inv.State == gitagency.StatusBlocked
}

// waitsSince returns the time since which an invocation waits for a person.
func waitsSince(inv gitagency.Invocation) time.Time {
	switch reviewRank(inv) {
	case 1:
		return inv.AskedAt
	case 2:
		return inv.SubmittedAt
	}
	return inv.FinishedAt
}

// printWaiting prints what waits for a person, with the commands to type.
func (t Commands) printWaiting(waiting []gitagency.Invocation) error {
	var b strings.Builder
	for _, inv := range waiting {
		fmt.Fprintf(&b, "%s %s", format.IDWithName(inv.ID, inv.Name), term.OneLine(format.State(inv, t.Now())))
		if inv.Radar != "" {
			fmt.Fprintf(&b, ", radar %s", inv.Radar)
		}
		if about := cmp.Or(inv.Question, inv.StatusReason, inv.Task); about != "" {
			fmt.Fprintf(&b, ": %s", term.OneLine(quote.Shorten(about, maxLogLine)))
		}
		b.WriteByte('\n')
		for _, command := range reviewCommands(inv) {
			fmt.Fprintf(&b, "    git agency %s\n", command)
		}
	}
	_, err := t.Stdout.WriteString(b.String())
	return err
}

// reviewCommands returns the commands to type for an invocation that waits.
func reviewCommands(inv gitagency.Invocation) []string {
	switch {
	case inv.Question != "":
		return []string{"resume " + inv.ID + " --answer '<answer>' --detach"}
	case inv.State == gitagency.StateReview:
		return []string{"diff " + inv.ID, "land " + inv.ID, "reject " + inv.ID + " -m '<reason>'"}
	case inv.State == gitagency.StatusFinished:
		return []string{"diff " + inv.ID, "land " + inv.ID, "resume " + inv.ID + " -p '<what to do>' --detach"}
	case inv.SessionID == "":
		return []string{"diff " + inv.ID}
	}
	return []string{"logs " + inv.ID, "resume " + inv.ID + " --detach", "discard " + inv.ID}
}
