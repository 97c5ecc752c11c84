package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/gitagency"
)

// tellAlone says of several that would land that they may not all.
func (t *tool) tellAlone(c *cli.Context, results []landing) {
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

// landing is what came of one, also when that is nothing.
type landing struct {
	gitagency.Landed
	Conflicts []gitagency.Conflict `json:"conflicts"`
	Error     string               `json:"error"`
	pushing

	worktree string
}

// pushing is what came of a push, also when there was none.
type pushing struct {
	Pushed            bool   `json:"pushed"`
	Remote            string `json:"remote"`             // where to
	PushTries         int    `json:"push_tries"`         // how often it was sent there
	IntegrationCommit string `json:"integration_commit"` // where the branch was then: what others had pushed may have been merged
}

func landingOf(query, worktree string, landed gitagency.Landed, err error) landing {
	l := landing{Landed: landed, Conflicts: conflictsOf(err), Error: messageOf(err), worktree: worktree}
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

func messageOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// printConflicts lists the conflicts of an error, if it is about such.
func (t *tool) printConflicts(err error) error {
	var conflicts *gitagency.ConflictsError
	if !errors.As(err, &conflicts) {
		return nil
	}
	for _, c := range conflicts.Conflicts {
		if err := t.printLine(strings.Join(c.Kinds, ",") + "\t" + gitagency.QuotedPath(c.Path)); err != nil {
			return err
		}
	}
	return nil
}

// tellLanded says what came of a landing.
func (t *tool) tellLanded(l gitagency.Landed) {
	for _, o := range l.LeftOut {
		t.warn("left out " + gitagency.QuotedPath(o.Path) + ": " + whyLeftOut[o.Why])
	}
	kept := slices.IndexFunc(l.LeftOut, func(o gitagency.LeftOut) bool { return o.Why == gitagency.LeftSecret })
	if kept >= 0 && l.TrashRef != "" {
		t.hint("what looks like a credential is kept until it is pruned: git show " + gitagency.ShellWord(l.TrashRef+":"+l.LeftOut[kept].Path))
	}
	if l.Unsaid {
		t.warn("there was nothing in " + l.Invocation + " to commit; the message of --commit-all is not used")
	}
	would := ""
	if l.DryRun {
		would = "would have "
	}
	switch {
	case l.Already && l.Strategy == "":
		fmt.Fprintf(t.stderr, "nothing of %s had to land: %s has all of it\n", l.Invocation, l.Branch)
	case l.Already:
		fmt.Fprintf(t.stderr, "%s had landed before: %s has all of it\n", l.Invocation, l.Branch)
	default:
		fmt.Fprintf(t.stderr, "%slanded %s of %s on %s\n", would, counted(l.Commits, "commit", "commits"), l.Invocation, l.Branch)
	}
}
