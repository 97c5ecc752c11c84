package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// noteSeparateDryRuns prints, after a dry run of several landings, that they were tried one by one and may conflict
// with each other.
func (t *tool) noteSeparateDryRuns(c *cli.Context, results []landOutput) {
	n := 0
	for _, l := range results {
		if l.Commit != "" && !l.Already {
			n++
		}
	}
	if c.Bool("dry-run") && n > 1 {
		fmt.Fprintln(t.stderr, "each was tried alone, on the branch as it is now; together some of them may conflict")
	}
}

// landOutput is the JSON of one landing, also after a failure.
type landOutput struct {
	gitagency.LandResult
	Conflicts []gitagency.Conflict `json:"conflicts"`
	Error     string               `json:"error"`
	pushOutput

	worktreeID string
}

// pushOutput is the JSON of a push, all zero without one.
type pushOutput struct {
	Pushed            bool   `json:"pushed"`
	Remote            string `json:"remote"`             // name of the remote
	PushTries         int    `json:"push_tries"`         // number of attempts
	IntegrationCommit string `json:"integration_commit"` // tip of the branch after the push, with commits of others merged
}

func newLandOutput(query, worktree string, landed gitagency.LandResult, err error) landOutput {
	l := landOutput{LandResult: landed, Conflicts: conflictsOf(err), Error: errorText(err), worktreeID: worktree}
	if l.Invocation == "" {
		l.Invocation, l.LeftOut = query, []gitagency.LeftOut{}
	}
	var unverified *gitagency.VerifyError
	if errors.As(err, &unverified) {
		l.VerifyLog = unverified.Log
	}
	return l
}

func conflictsOf(err error) []gitagency.Conflict {
	var conflicts *gitagency.ConflictsError
	if errors.As(err, &conflicts) {
		return conflicts.Conflicts
	}
	return []gitagency.Conflict{}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// printConflicts prints the kinds and the path of each conflict, if err is about conflicts.
func (t *tool) printConflicts(err error) error {
	var conflicts *gitagency.ConflictsError
	if !errors.As(err, &conflicts) {
		return nil
	}
	for _, c := range conflicts.Conflicts {
		if err := t.printLine(strings.Join(c.Kinds, ",") + "\t" + quote.Path(c.Path)); err != nil {
			return err
		}
	}
	return nil
}

// reportLanded prints the result of a landing, with warnings.
func (t *tool) reportLanded(l gitagency.LandResult) {
	for _, o := range l.LeftOut {
		t.warn("left out " + quote.Path(o.Path) + ": " + leftOutReasons[o.Reason])
	}
	kept := slices.IndexFunc(l.LeftOut, func(o gitagency.LeftOut) bool { return o.Reason == gitagency.LeftOutSecret })
	if kept >= 0 && l.TrashRef != "" {
		t.printHint("files that look like credentials are kept until they are pruned: git show " + quote.Shell(l.TrashRef+":"+l.LeftOut[kept].Path))
	}
	if l.MessageUnused {
		t.warn(l.Invocation + " has no uncommitted work; the message of --commit-all is not used")
	}
	would := ""
	if l.DryRun {
		would = "would have "
	}
	switch {
	case l.Already && l.Strategy == "":
		fmt.Fprintf(t.stderr, "%s has nothing to land: %s has all of its work\n", l.Invocation, l.Branch)
	case l.Already:
		fmt.Fprintf(t.stderr, "%s had landed before: %s has all of its work\n", l.Invocation, l.Branch)
	default:
		fmt.Fprintf(t.stderr, "%slanded %s of %s on %s\n", would, format.Count(l.Commits, "commit", "commits"), l.Invocation, l.Branch)
	}
}
