package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) showCommand() *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show one invocation",
		UsageText: "git agency show [--walls] [<id>] [--json | --porcelain [-z]]",
		Description: `<id> is an id, its part after the dash, a unique prefix of either, @ for the newest invocation that
has not ended, @-1 for the one before it, or nothing in the directory of a sandbox; never a name. A broken
invocation answers to its full id only.

With --walls: what commands in the sandbox can read, write and reach, what is hidden, and why. Outside of a
sandbox and without <id>, it is about a sandbox that would be started now.

Exit status: 0 shown; 3 no such invocation; 4 shown as far as known, but it is broken; 129 usage.`,
		Flags: program.WithListingFlags(
			&cli.BoolFlag{Name: "walls", Usage: "print what is readable, writable, hidden and reachable, and why"},
		),
		Action: func(c *cli.Context) error {
			if c.Bool("walls") {
				return t.showWalls(c)
			}
			repo, query, err := t.OpenForOptionalQuery(c)
			if err != nil {
				return err
			}
			inv, err := repo.InvocationActivity(c.Context, query)
			if err != nil {
				return err
			}
			refusals, err := repo.Refusals(inv.ID)
			if err != nil {
				t.Warn(err.Error())
			}
			return t.printInvocation(c, inv, refusals)
		},
	}
}

// printInvocation prints one invocation and what was refused of its sandbox. further fields are for people.
func (t *tool) printInvocation(c *cli.Context, inv gitagency.Invocation, refusals []gitagency.Refusal, further ...program.Field) error {
	t.warnRefused(refusals)
	if c.Bool("json") {
		if err := t.PrintJSON(shownInvocation{inv, refusals}); err != nil {
			return err
		}
		return inv.Err()
	}
	return program.PrintOne(t.Program, c, inv, invocationFields, func(i gitagency.Invocation) []program.Field {
		if len(i.Paths) > 0 { // these name refs and commits of a repository that has none of the files
			i.SandboxBranch, i.BaseCommit, i.TrashRef = "", "", ""
		}
		return append(t.invocationDetails(i), further...)
	})
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
		t.Warn(fmt.Sprintf("sandbox %s: %s: %s; %s", r.ID, what, term.OneLine(r.Reason), r.Remedy))
	}
}

// invocationDetails returns the fields of an invocation that 'show' prints for people.
func (t *tool) invocationDetails(i gitagency.Invocation) []program.Field {
	p, now := i.Primitives, t.Now()
	return slices.Concat([]program.Field{
		{Key: "invocation", Value: i.ID},
		{Key: "name", Value: i.Name, Optional: true},
		{Key: "worktree", Value: format.NameWithID(i.Worktree, i.WorktreeID), Optional: true},
		{Key: "path", Value: sandboxPath(i), Optional: true},
		{Key: "branch", Value: i.SandboxBranch, Optional: true},
		{Key: "base", Value: i.BaseCommit, Optional: true},
		{Key: "from-snapshot", Value: i.FromSnapshot, Optional: true},
		{Key: "clone-source", Value: i.CloneSource, Optional: true},
		{Key: "verifies", Value: i.Verifies, Optional: true},
		{Key: "synced", Value: i.SyncedCommit, Optional: true},
		{Key: "integration-branch", Value: i.IntegrationBranch, Optional: true},
		{Key: "runner", Value: i.Runner, Optional: true},
		{Key: "mode", Value: i.Mode, Optional: true},
		{Key: "task", Value: i.Task, Optional: true},
		{Key: "state", Value: format.State(i, now), Optional: true},
		{Key: "running-since", Value: format.TimeWithAge(now, i.RunningSince), Optional: true},
		{Key: "reason", Value: i.StatusReason, Optional: true},
		{Key: "question", Value: i.Question, Optional: true},
		{Key: "options", Value: strings.Join(i.Options, ", "), Optional: true},
		{Key: "question-context", Value: i.Context, Optional: true},
		{Key: "asked", Value: format.TimeWithAge(now, i.AskedAt), Optional: true},
		{Key: "warnings", Value: strings.Join(i.Warnings, "; "), Optional: true},
		{Key: "last-message", Value: i.LastMessage, Optional: true},
		{Key: "session", Value: i.SessionID, Optional: true},
		{Key: "cost", Value: format.Cost(i.CostUSD), Optional: true},
		{Key: "exit-code", Value: format.Number(i.ExitCode), Optional: true},
		{Key: "finished", Value: format.TimeWithAge(now, i.FinishedAt), Optional: true},
		{Key: "ahead", Value: numberOrUnknown(i, i.Ahead), Optional: true},
		{Key: "changed", Value: numberOrUnknown(i, i.Dirty), Optional: true},
		{Key: "landing", Value: i.Landing, Optional: true},
		{Key: "submitted", Value: format.TimeWithAge(now, i.SubmittedAt), Optional: true},
		{Key: "submitted-commit", Value: i.SubmittedCommit, Optional: true},
		{Key: "review-note", Value: i.ReviewNote, Optional: true},
		{Key: "rejected", Value: format.TimeWithAge(now, i.RejectedAt), Optional: true},
		{Key: "rejected-reason", Value: i.RejectedReason, Optional: true},
		{Key: "landed", Value: format.TimeWithAge(now, i.LandedAt), Optional: true},
		{Key: "landed-commit", Value: i.LandedCommit, Optional: true},
		{Key: "landed-before", Value: i.LandedBefore, Optional: true},
		{Key: "landed-tip", Value: i.LandedTip, Optional: true},
		{Key: "landed-branch", Value: i.LandedBranch, Optional: true},
		{Key: "landed-strategy", Value: i.LandedStrategy, Optional: true},
		{Key: "unlanded-commit", Value: i.UnlandedCommit, Optional: true},
		{Key: "unlanded", Value: format.TimeWithAge(now, i.UnlandedAt), Optional: true},
		{Key: "kept", Value: i.TrashRef, Optional: true},
		{Key: "archive", Value: i.TrashArchive, Optional: true},
		{Key: "started", Value: format.TimeWithAge(now, i.StartedAt), Optional: true},
		{Key: "changeset", Value: p.Changeset, Optional: true},
		{Key: "platform", Value: p.Platform, Optional: true},
		{Key: "job", Value: strings.TrimSpace(i.PlatformJob + " " + i.PlatformState), Optional: true},
		{Key: "job-detail", Value: i.PlatformDetail, Optional: true},
		{Key: "node", Value: i.PlatformNode, Optional: true},
		{Key: "attempt", Value: numberOrEmpty(i.Attempt), Optional: true},
		{Key: "isolation", Value: p.Isolation, Optional: true},
		{Key: "outputs", Value: p.Outputs, Optional: true},
		{Key: "software", Value: softwareText(p), Optional: true},
	}, limitDetails(i.Limits), pathFields(i), []program.Field{
		{Key: "broken", Value: i.BrokenReason, Optional: true},
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

// limitDetails returns the limits of a sandbox that 'show' prints for people.
func limitDetails(l gitagency.Limits) []program.Field {
	text := func(kind gitagency.LimitKind, value int64) string {
		if value == 0 {
			return ""
		}
		return kind.Format(value)
	}
	bestEffort := ""
	if l.BestEffort {
		bestEffort = "best effort"
	}
	return []program.Field{
		{Key: "memory", Value: text(gitagency.MemoryLimit, l.Memory), Optional: true},
		{Key: "processes", Value: text(gitagency.ProcessLimit, int64(l.Processes)), Optional: true},
		{Key: "file size", Value: text(gitagency.FileSizeLimit, l.FileSize), Optional: true},
		{Key: "timeout", Value: text(gitagency.TimeoutLimit, int64(l.Timeout)), Optional: true},
		{Key: "nice", Value: text(gitagency.NiceLimit, int64(l.Nice)), Optional: true},
		{Key: "limits", Value: bestEffort, Optional: true},
	}
}

// softwareText returns the software of a sandbox, with the id of an image.
func softwareText(p gitagency.Primitives) string {
	if p.SoftwareImage == "" {
		return p.Software
	}
	return fmt.Sprintf("%s (image %.12s)", p.Software, p.SoftwareImage)
}
