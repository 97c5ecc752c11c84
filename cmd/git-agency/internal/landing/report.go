package landing

import (
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// noteSeparateDryRuns prints, after a dry run of several landings, that they were tried one by one and may conflict
// with each other.
func (t Commands) noteSeparateDryRuns(c *cli.Context, results []landOutput) {
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
	l := landOutput{LandResult: landed, Conflicts: format.Conflicts(err), Error: format.ErrorText(err)}
	if l.Invocation == "" {
		l.Invocation, l.LeftOut = query, []gitagency.LeftOut{}
	}
	var unverified *gitagency.VerifyError
	if errors.As(err, &unverified) {
		l.VerifyLog = unverified.Log
	}
	return l
}

// reportLeftOut names the files of a sandbox that are in none of the commits that landed.
func (t Commands) reportLeftOut(l gitagency.LandResult) {
	left := 0
	for _, o := range l.LeftOut {
		if o.Reason == gitagency.LeftOutLeft {
			left++
			continue
		}
		t.Warn(format.LeftOut(o))
	}
	kept := slices.IndexFunc(l.LeftOut, func(o gitagency.LeftOut) bool { return o.Reason == gitagency.LeftOutSecret })
	if kept >= 0 && l.TrashRef != "" {
		t.PrintHint("files that look like credentials are kept until they are pruned: git show " + quote.Shell(l.TrashRef+":"+l.LeftOut[kept].Path))
	}
	if left > 0 {
		t.reportLeft(l, left)
	}
}

// reportLeft says how many files a landing left in the trash, and how to see them.
func (t Commands) reportLeft(l gitagency.LandResult, files int) {
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

// printLanded prints the result of a landing for programs: the new commit, or the files that changed in plain directories.
func (t Commands) printLanded(inv gitagency.Invocation, l gitagency.LandResult) error {
	if len(inv.Paths) == 0 {
		return t.PrintLine(l.Commit)
	}
	for _, file := range l.Files {
		if err := t.PrintLine(quote.Path(file)); err != nil {
			return err
		}
	}
	return nil
}

// reportLandedPaths prints the result of a landing in plain directories, with warnings.
func (t Commands) reportLandedPaths(l gitagency.LandResult, name string) {
	for _, o := range l.LeftOut {
		t.Warn(format.LeftOut(o))
	}
	invocation := format.IDWithName(l.Invocation, name)
	switch files := format.Count(len(l.Files), "file", "files"); {
	case l.Already:
		fmt.Fprintf(t.Stderr, "%s had landed before\n", invocation)
	case l.DryRun:
		fmt.Fprintf(t.Stderr, "would have landed %s of %s\n", files, invocation)
	default:
		fmt.Fprintf(t.Stderr, "%s %s of %s\n", t.PaintSuccess("landed"), files, invocation)
	}
}

// reportLanded prints the result of the landing of an invocation with this name, with warnings.
func (t Commands) reportLanded(l gitagency.LandResult, name string) {
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
	t.HintOutdated(l.Outdated)
}
