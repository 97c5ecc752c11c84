package main

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) showCommand() *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show one invocation",
		UsageText: "git agency show <id> [--json | --porcelain [-z]]",
		Description: `<id> is an invocation id or a unique prefix of one, never a name; a broken invocation answers to
its full id only.

Exit status: 0 shown; 3 no such invocation; 4 shown as far as known, but it is broken; 129 usage.`,
		Flags: withListingFlags(),
		Action: func(c *cli.Context) error {
			repo, query, err := t.openForQuery(c)
			if err != nil {
				return err
			}
			inv, err := repo.Invocation(query)
			if err != nil {
				return err
			}
			refusals, err := repo.Refusals(inv.ID)
			if err != nil {
				t.warn(err.Error())
			}
			t.warnRefused(refusals)
			if c.Bool("json") {
				if err := t.printJSON(shownInvocation{inv, refusals}); err != nil {
					return err
				}
				return inv.Err()
			}
			return printOne(t, c, inv, invocationFields, t.invocationDetails)
		},
	}
}

// shownInvocation is the JSON output of 'show'.
type shownInvocation struct {
	gitagency.Invocation
	Refusals []gitagency.Refusal `json:"refusals,omitempty"`
}

// warnRefused names what was refused of sandboxes, with the reasons and the commands to type.
func (t *tool) warnRefused(refusals []gitagency.Refusal) {
	for _, r := range refusals {
		what := "its new commits are not imported"
		if r.What == gitagency.RefusedFiles {
			what = "its files are refused"
		}
		t.warn(fmt.Sprintf("sandbox %s: %s: %s; %s", r.ID, what, term.OneLine(r.Reason), r.Remedy))
	}
}

// invocationDetails returns the fields of an invocation that 'show' prints for people.
func (t *tool) invocationDetails(i gitagency.Invocation) []field {
	p, now := i.Primitives, t.now()
	return slices.Concat([]field{
		{"invocation", i.ID, false},
		{"name", i.Name, true},
		{"worktree", format.NameWithID(i.Worktree, i.WorktreeID), true},
		{"path", sandboxPath(i), true},
		{"branch", i.SandboxBranch, true},
		{"base", i.BaseCommit, true},
		{"from-snapshot", i.FromSnapshot, true},
		{"verifies", i.Verifies, true},
		{"synced", i.SyncedCommit, true},
		{"runner", i.Runner, true},
		{"mode", i.Mode, true},
		{"status", format.State(i), true},
		{"landing", i.Landing, true},
		{"submitted", format.TimeWithAge(now, i.SubmittedAt), true},
		{"submitted-commit", i.SubmittedCommit, true},
		{"review-note", i.ReviewNote, true},
		{"rejected", format.TimeWithAge(now, i.RejectedAt), true},
		{"rejected-reason", i.RejectedReason, true},
		{"landed", format.TimeWithAge(now, i.LandedAt), true},
		{"landed-commit", i.LandedCommit, true},
		{"landed-before", i.LandedBefore, true},
		{"landed-tip", i.LandedTip, true},
		{"landed-branch", i.LandedBranch, true},
		{"landed-strategy", i.LandedStrategy, true},
		{"unlanded-commit", i.UnlandedCommit, true},
		{"unlanded", format.TimeWithAge(now, i.UnlandedAt), true},
		{"kept", i.TrashRef, true},
		{"archive", i.TrashArchive, true},
		{"started", format.TimeWithAge(now, i.StartedAt), true},
		{"changeset", p.Changeset, true},
		{"platform", p.Platform, true},
		{"isolation", p.Isolation, true},
		{"outputs", p.Outputs, true},
		{"software", p.Software, true},
	}, limitDetails(i.Limits), []field{
		{"broken", i.BrokenReason, true},
	})
}

// sandboxPath returns the path of a sandbox, or "" if the sandbox was removed on purpose.
func sandboxPath(i gitagency.Invocation) string {
	path, err := i.Path()
	if err != nil && !i.Broken {
		return ""
	}
	return path
}
