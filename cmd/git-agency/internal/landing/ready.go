package landing

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/interrupt"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
	"github.com/git-agency/git-agency/gitagency/reason"
)

// landReady lands all submitted invocations of a worktree and prints the result of each.
func (t Commands) landReady(c *cli.Context) error {
	args, err := program.PositionalArgs(c, 0, 1)
	if err != nil {
		return err
	}
	dir, err := t.CurrentDir()
	if err != nil {
		return err
	}
	repo, err := t.OpenRepository(c)
	if err != nil {
		return err
	}
	wt, err := findReadyWorktree(c, repo, strings.Join(args, ""))
	if err != nil {
		return err
	}
	plans, err := t.planPush(c, repo, gitagency.PushRequest{Worktree: wt.ID})
	if err != nil {
		return err
	}
	tableID, err := t.TableIDs(c, repo)
	if err != nil {
		return err
	}
	req, err := t.landRequest(c, repo)
	if err != nil {
		return err
	}
	ctx, stop := interrupt.OnParentExit(c.Context, program.InterruptedError{Signal: syscall.SIGTERM})
	defer stop()
	attempts, err := repo.LandReady(ctx, wt.ID, req)
	if err != nil && attempts == nil {
		return err
	}
	if len(attempts) == 0 && err == nil && !c.Bool("json") {
		fmt.Fprintln(t.Stderr, "nothing is submitted")
	}
	results := make([]landOutput, 0, len(attempts))
	rows := make([][]string, 0, len(attempts))
	queue := &landQueueError{}
	for _, a := range attempts {
		result := queue.add(a)
		if a.Err == nil {
			t.reportLeftOut(a.LandResult)
			t.HintOutdated(a.Outdated)
		}
		t.warnUnresolved(a.Err)
		var verifyErr *gitagency.VerifyError
		if errors.As(a.Err, &verifyErr) {
			queue.verifyHints = t.HintsFor(verifyErr)
		}
		results = append(results, newLandOutput(a.Invocation, a.LandResult, a.Err))
		rows = append(rows, []string{tableID(a.Invocation), a.Name, result, a.Commit, failureSummary(a.Err)})
	}
	t.removeLanded(repo, dir, results)
	t.noteSeparateDryRuns(c, results)
	if err == nil { // push even if nothing landed now: an earlier landing may not have been pushed
		err = t.pushLanded(c, repo, plans, results)
	} else {
		t.warnUnpushed(c, plans, results)
	}
	switch {
	case c.Bool("json"):
		err = errors.Join(err, t.PrintJSON(results))
	case len(attempts) == 0:
	default:
		err = errors.Join(err, t.PrintTable([]string{"ID", "NAME", "RESULT", "COMMIT", "WHY"}, rows))
	}
	if queue.landed < len(attempts) && (err == nil || hints.Is[*gitagency.NotPushedError](err)) {
		err = errors.Join(err, queue)
	}
	return err
}

// findReadyWorktree returns the worktree whose queue is to land. It also finds an archived worktree, to report it as
// archived, and reports the id of an invocation as a usage error.
func findReadyWorktree(c *cli.Context, repo *gitagency.Repository, query string) (gitagency.Worktree, error) {
	wt, err := repo.Worktree(query)
	if hints.Is[*gitagency.NotFoundError](err) {
		if _, invErr := repo.Invocation(query); invErr == nil {
			return wt, program.NewUsageError(c, errors.New("--all-ready takes a worktree, not the id of an invocation"))
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
		err = &gitagency.StateError{
			Reason: reason.Archived, ID: wt.ID, Name: wt.Name, Branch: wt.Branch,
			Err: fmt.Errorf("worktree %q (%s) is archived", wt.Name, wt.ID),
		}
	}
	return wt, err
}

// failureSummary returns one line on why an invocation did not land: the paths in conflict, or the message.
func failureSummary(err error) string {
	paths := []string{}
	for _, c := range format.Conflicts(err) {
		paths = append(paths, quote.Path(c.Path))
	}
	if len(paths) > 0 {
		return strings.Join(paths, " ")
	}
	return term.Printable(format.Summary(format.ErrorText(err)))
}

// landQueueError reports that not all submitted invocations have landed. The table or the JSON has the result of each.
type landQueueError struct {
	landed, failed int
	conflicting    []string // ids of the invocations that conflict
	verifyHints    []string // hints on the last verification that failed, such as walls in its way
}

// add counts the result of an invocation, and returns it in words.
func (e *landQueueError) add(a gitagency.LandReadyResult) string {
	switch {
	case hints.Is[*gitagency.ConflictsError](a.Err):
		e.conflicting = append(e.conflicting, a.Invocation)
		return "conflicts"
	case a.Err != nil:
		e.failed++
		return "failed"
	}
	if e.landed++; a.DryRun {
		return "would land"
	}
	return "landed"
}

func (e *landQueueError) Error() string {
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
			parts = append(parts, format.Count(p.n, p.one, p.many))
		}
	}
	return "not all submitted work lands: " + strings.Join(parts, ", ")
}

func (e *landQueueError) hints() []string {
	switch len(e.conflicting) {
	case 0:
		return e.verifyHints
	case 1:
		return append(e.verifyHints, "'git agency sync "+e.conflicting[0]+"' merges the integration branch into the sandbox, to resolve the conflicts there")
	}
	return append(e.verifyHints, "'git agency sync <id>' merges the integration branch into a sandbox, to resolve its conflicts there")
}
