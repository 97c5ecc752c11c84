package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

// landReady lands all submitted invocations of a worktree and prints the result of each.
func (t *tool) landReady(c *cli.Context) error {
	args, err := arguments(c, 0, 1)
	if err != nil {
		return err
	}
	repo, err := t.open(c)
	if err != nil {
		return err
	}
	wt, err := readyWorktree(c, repo, strings.Join(args, ""))
	if err != nil {
		return err
	}
	plans, err := t.planPush(c, repo, wt.ID)
	if err != nil {
		return err
	}
	req := t.landRequest(c)
	if req.Later, err = repo.TidiesLater(); err != nil {
		return err
	}
	ctx, stop := withParent(c.Context)
	defer stop()
	attempts, err := repo.LandReady(ctx, wt.ID, req)
	if err != nil && attempts == nil {
		return err
	}
	if len(attempts) == 0 && err == nil && !c.Bool("json") {
		fmt.Fprintln(t.stderr, "nothing is submitted")
	}
	results := make([]landing, 0, len(attempts))
	rows := make([][]string, 0, len(attempts))
	queue := &queueError{}
	for _, a := range attempts {
		result := "landed"
		switch {
		case is[*gitagency.ConflictsError](a.Err):
			result, queue.conflicting = "conflicts", append(queue.conflicting, a.Invocation)
		case a.Err != nil:
			result, queue.failed = "failed", queue.failed+1
		case a.DryRun:
			result = "would land"
		}
		if a.Err == nil {
			queue.landed++
		}
		var verifyErr *gitagency.VerifyError
		if errors.As(a.Err, &verifyErr) {
			queue.walls = hints(t.typed(verifyErr))
		}
		results = append(results, landingOf(a.Invocation, wt.ID, a.Landed, a.Err))
		rows = append(rows, []string{a.Invocation, a.Name, result, a.Commit, why(a.Err)})
	}
	t.tidyLater(repo, results)
	t.tellAlone(c, results)
	if err == nil { // push even if nothing landed now: an earlier landing may not have been pushed
		err = t.push(c, repo, plans, results)
	} else {
		t.tellUnpushed(c, plans, results)
	}
	switch {
	case c.Bool("json"):
		err = errors.Join(err, t.printJSON(results))
	case len(attempts) == 0:
	default:
		err = errors.Join(err, t.printTable([]string{"ID", "NAME", "RESULT", "COMMIT", "WHY"}, rows))
	}
	if queue.landed < len(attempts) && (err == nil || is[*gitagency.NotPushedError](err)) {
		err = errors.Join(err, queue)
	}
	return err
}

// findReadyWorktree returns the worktree whose queue is to land. It also finds an archived worktree, to report it as
// archived, and reports the id of an invocation as a usage error.
func readyWorktree(c *cli.Context, repo *gitagency.Repository, query string) (gitagency.Worktree, error) {
	wt, err := repo.Worktree(query)
	if is[*gitagency.NotFoundError](err) {
		if _, invErr := repo.Invocation(query); invErr == nil {
			return wt, asUsage(c, errors.New("--all-ready lands all that was submitted in a worktree; it takes no ids of invocations"))
		}
		all, listErr := repo.Worktrees(true)
		if listErr != nil {
			return wt, listErr
		}
		for _, w := range all { // by its name, which no present worktree has
			if w.Name == query && w.State == "archived" {
				wt, err = w, nil
			}
		}
	}
	if err == nil && wt.State == "archived" {
		err = &gitagency.ArchivedError{Name: wt.Name, ID: wt.ID, Branch: wt.Branch}
	}
	return wt, err
}

// failureSummary returns one line on why an invocation did not land: the paths in conflict, or the message.
func why(err error) string {
	paths := []string{}
	for _, c := range conflictsOf(err) {
		paths = append(paths, gitagency.QuotedPath(c.Path))
	}
	if len(paths) > 0 {
		return strings.Join(paths, " ")
	}
	return printable(inOneLine(messageOf(err)))
}

// summarizeMessage returns the first line of a message. If that line introduces a list, the first item and the number
// of further items are added.
func inOneLine(message string) string {
	first, rest, _ := strings.Cut(message, "\n")
	if !strings.HasSuffix(first, ":") || rest == "" {
		return strings.TrimSuffix(first, ":")
	}
	list := strings.Split(rest, "\n")
	more, unlisted := len(list)-1, 0
	if n, err := fmt.Sscanf(strings.TrimSpace(list[more]), "and %d more", &unlisted); n == 1 && err == nil {
		more += unlisted - 1
	}
	text := first + " " + strings.TrimSpace(list[0])
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// landQueueError reports that not all submitted invocations have landed. The table or the JSON has the result of each.
type queueError struct {
	landed, failed int
	conflicting    []string // ids of the invocations that conflict
	walls          []string // hints on the last verification that failed, such as walls in its way
}

func (e *queueError) Error() string {
	var parts []string
	other := ""
	if len(e.conflicting) > 0 {
		other = " for another reason"
	}
	for _, p := range []struct {
		n         int
		one, many string
	}{{e.landed, "does", "do"}, {len(e.conflicting), "conflicts", "conflict"}, {e.failed, "fails" + other, "fail" + other}} {
		if p.n > 0 {
			parts = append(parts, counted(p.n, p.one, p.many))
		}
	}
	return "not everything that was submitted lands: " + strings.Join(parts, ", ")
}

func (e *queueError) hints() []string {
	switch len(e.conflicting) {
	case 0:
		return e.walls
	case 1:
		return append(e.walls, "'git agency sync "+e.conflicting[0]+"' brings what it conflicts with into the sandbox, to be resolved there")
	}
	return append(e.walls, "'git agency sync <id>' brings what one conflicts with into its sandbox, to be resolved there")
}
