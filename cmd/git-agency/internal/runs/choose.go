package runs

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

// candidates says from which runs a command without an id chooses.
type candidates struct {
	several  string // says of several what they do: "agents run"
	only     string // says the same of one: "the only agent that runs"
	includes func(inv gitagency.Invocation) bool
	orNewest bool // without a candidate, the newest run is chosen, also of an invocation that has ended
}

var (
	runningAgents = candidates{several: "agents run", only: "the only agent that runs", includes: isRunning}
	loggedRuns    = candidates{several: runningAgents.several, only: runningAgents.only, includes: isRunning, orNewest: true}
	askingAgents  = candidates{several: "agents wait for an answer", only: "the only agent that waits for an answer", includes: waitsForAnswer}
)

// isRunning reports whether the agent of an invocation runs.
func isRunning(inv gitagency.Invocation) bool { return inv.IsRunning() }

// waitsForAnswer reports whether the agent of an invocation waits for an answer, also one that has ended its run.
func waitsForAnswer(inv gitagency.Invocation) bool {
	return asksWhileRunning(inv) || !inv.IsRunning() && inv.Status == gitagency.StatusBlocked && inv.Question != ""
}

// openForRun opens the repository for a command about one run: the named one, that of the sandbox around the current
// directory, or the only candidate.
func (t Commands) openForRun(c *cli.Context, from candidates) (_ *gitagency.Repository, id string, err error) {
	query, err := program.OptionalArg(c)
	if err != nil {
		return nil, "", err
	}
	repo, err := t.OpenRepository(c)
	if err != nil {
		return nil, "", err
	}
	id, err = t.chooseRun(c, repo, query, from)
	return repo, id, err
}

// chooseRun returns the id of the run that a command is about, as openForRun does. It prints on standard error which
// candidate it chose.
func (t Commands) chooseRun(c *cli.Context, repo *gitagency.Repository, query string, from candidates) (string, error) {
	id, err := program.CurrentUnlessNamed(c, repo, query)
	var usage *program.UsageError
	if !errors.As(err, &usage) {
		return id, err
	}
	all, listErr := repo.Invocations(c.Context, gitagency.ListRequest{All: from.orNewest})
	if listErr != nil {
		return "", listErr
	}
	var found []gitagency.Invocation
	newest := gitagency.Invocation{}
	for _, inv := range all { // the oldest first
		if inv.Broken || inv.SessionID == "" {
			continue
		}
		if newest = inv; from.includes(inv) {
			found = append(found, inv)
		}
	}
	why := from.only
	if len(found) == 0 && from.orNewest && newest.ID != "" {
		found, why = []gitagency.Invocation{newest}, "the newest run"
	}
	switch len(found) {
	case 0:
		return "", err
	case 1:
		fmt.Fprintf(t.Stderr, "%s: %s\n", why, describeRun(found[0]))
		return found[0].ID, nil
	}
	var list strings.Builder
	for _, inv := range found {
		list.WriteString("\n  " + describeRun(inv))
	}
	return "", &program.UsageError{Err: fmt.Errorf("no <id> given, and several %s:%s", from.several, list.String()), Usage: usage.Usage}
}

// describeRun returns the id of a run with its name, or the beginning of its task.
func describeRun(inv gitagency.Invocation) string {
	return format.IDWithName(inv.ID, term.Cut(cmp.Or(inv.Name, inv.Task), 60))
}
