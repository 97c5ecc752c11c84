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

// candidates says which runs a command may mean that names none.
type candidates struct {
	are    string // what they have in common, as in "agents that run"
	only   string // the same of a single one
	isOne  func(inv gitagency.Invocation) bool
	newest bool // without a candidate, the newest run counts, also one that has ended
}

var (
	runningAgents = candidates{are: "agents run", only: "the only agent that runs", isOne: func(inv gitagency.Invocation) bool { return inv.PID != 0 }}
	loggedRuns    = candidates{are: runningAgents.are, only: runningAgents.only, isOne: runningAgents.isOne, newest: true}
	askingAgents  = candidates{are: "agents wait for an answer", only: "the only agent that waits for an answer", isOne: func(inv gitagency.Invocation) bool {
		return isAsking(inv) || inv.PID == 0 && inv.Status == gitagency.StatusBlocked && inv.Question != ""
	}}
)

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

// chooseRun returns the run that a command is about, as openForRun does, and says on standard error which one it chose.
func (t Commands) chooseRun(c *cli.Context, repo *gitagency.Repository, query string, from candidates) (string, error) {
	id, err := program.CurrentUnlessNamed(c, repo, query)
	var usage *program.UsageError
	if !errors.As(err, &usage) {
		return id, err
	}
	all, listErr := repo.Invocations(c.Context, gitagency.ListRequest{All: from.newest})
	if listErr != nil {
		return "", listErr
	}
	var found []gitagency.Invocation
	newest := gitagency.Invocation{}
	for _, inv := range all { // the oldest first
		if inv.Broken || inv.SessionID == "" {
			continue
		}
		if newest = inv; from.isOne(inv) {
			found = append(found, inv)
		}
	}
	why := from.only
	if len(found) == 0 && from.newest && newest.ID != "" {
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
	return "", &program.UsageError{Err: fmt.Errorf("no <id> given, and several %s:%s", from.are, list.String()), Usage: usage.Usage}
}

// describeRun returns the id of a run with its name, or the beginning of its task.
func describeRun(inv gitagency.Invocation) string {
	return format.IDWithName(inv.ID, term.OneLine(term.Cut(cmp.Or(inv.Name, inv.Task), 60)))
}
