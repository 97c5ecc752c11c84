package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
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
		fmt.Fprintln(t.Stderr, "each was tried alone, on the branch as it is now; together some of them may conflict")
	}
}

// landOutput is the JSON of one landing, also after a failure.
type landOutput struct {
	gitagency.LandResult
	Conflicts []gitagency.Conflict `json:"conflicts"`
	Error     string               `json:"error"`
	pushOutput
}

// pushOutput is the JSON of a push, all zero without one.
type pushOutput struct {
	Pushed            bool   `json:"pushed"`
	Remote            string `json:"remote"`             // name of the remote
	PushTries         int    `json:"push_tries"`         // number of attempts
	IntegrationCommit string `json:"integration_commit"` // tip of the branch after the push, with commits of others merged
}

func newLandOutput(query string, landed gitagency.LandResult, err error) landOutput {
	l := landOutput{LandResult: landed, Conflicts: conflictsOf(err), Error: errorText(err)}
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
		if err := t.PrintLine(strings.Join(c.Kinds, ",") + "\t" + quote.Path(c.Path)); err != nil {
			return err
		}
	}
	return nil
}

// reportLeftOut names the files of a sandbox that are in none of the commits that landed.
func (t *tool) reportLeftOut(l gitagency.LandResult) {
	left := 0
	for _, o := range l.LeftOut {
		if o.Reason == gitagency.LeftOutLeft {
			left++
			continue
		}
		t.Warn("left out " + quote.Path(o.Path) + ": " + leftOutReasons[o.Reason])
	}
	kept := slices.IndexFunc(l.LeftOut, func(o gitagency.LeftOut) bool { return o.Reason == gitagency.LeftOutSecret })
	if kept >= 0 && l.TrashRef != "" {
		t.PrintHint("files that look like credentials are kept until they are pruned: git show " + quote.Shell(l.TrashRef+":"+l.LeftOut[kept].Path))
	}
	if left > 0 {
		t.reportLeft(l, left)
	}
}

// hintOutdated prints the commands that update submodules after commits for them have landed.
func (t *tool) hintOutdated(all []gitagency.OutdatedSubmodule) {
	for _, hint := range hints.OutdatedSubmodules(all) {
		t.PrintHint(hint)
	}
}

// reportLeft says how many files a landing left in the trash, and how to see them.
func (t *tool) reportLeft(l gitagency.LandResult, files int) {
	count := format.Count(files, "file", "files") + " uncommitted"
	if l.DryRun {
		fmt.Fprintf(t.Stderr, "would have left %s\n", count)
		return
	}
	if l.TrashRef == "" {
		return
	}
	also := ""
	if l.TrashArchive != "" {
		also = " and the archive " + quote.Path(l.TrashArchive)
	}
	fmt.Fprintf(t.Stderr, "left %s, and kept in %s%s\n", count, l.TrashRef, also)
	t.PrintHint("to list them: git diff --stat " + l.Tip + " " + l.TrashRef)
	t.PrintHint("to make a sandbox with them: git agency restore " + l.Invocation)
}

// reportLanded prints the result of the landing of an invocation with this name, with warnings.
func (t *tool) reportLanded(l gitagency.LandResult, name string) {
	invocation := format.IDWithName(l.Invocation, name)
	t.reportLeftOut(l)
	if l.MessageUnused {
		t.Warn(invocation + " has no uncommitted work; the message of --commit-all is not used")
	}
	would := ""
	if l.DryRun {
		would = "would have "
	}
	switch {
	case l.Already && l.Strategy == "":
		fmt.Fprintf(t.Stderr, "%s has nothing to land: %s has all of its work\n", invocation, l.Branch)
	case l.Already:
		fmt.Fprintf(t.Stderr, "%s had landed before: %s has all of its work\n", invocation, l.Branch)
	default:
		fmt.Fprintf(t.Stderr, "%s%s %s of %s on %s\n", would, t.PaintSuccess("landed"), format.Count(l.Commits, "commit", "commits"), invocation, l.Branch)
	}
	t.hintOutdated(l.Outdated)
}
