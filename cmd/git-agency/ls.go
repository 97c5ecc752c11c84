package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/worktrees"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

func (t *tool) lsCommand() *cli.Command {
	return &cli.Command{
		Name:      "ls",
		Aliases:   []string{"list"},
		Usage:     "list invocations",
		UsageText: "git agency ls [--all] [--worktree <wt>] [--radar] [--no-abbrev | --format <format> | --json | --porcelain [-z]]",
		Description: `Lists the invocations that are neither landed nor discarded nor broken, oldest first: whether a command
runs and for how long, or how the last one ended; how many commits are not on the integration branch; how
many files are changed or untracked; and the age. A question mark is a number that could not be found out.
On a narrow terminal names are shortened and columns are left out.

In <format>, %(<field>) is a field of the JSON output, as in '%(invocation_id) %(status)'; %% is a percent
sign, and %00, %0a and so on are bytes, as in 'git for-each-ref'. Each invocation ends with a newline. An
unknown field is refused, and the known ones are listed.

--radar adds the result of 'git agency radar': clean, conflicts(<paths>) with the integration branch,
rivals(<sandboxes>), clean but in conflict with that many other sandboxes, nothing to land, refused, or
error.

Exit status: 0, whatever is found; 3 no such worktree, or 4 if the repository was moved; 129 usage.`,
		Flags: program.WithAbbrevFlag(program.WithListingFlags(
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "include landed, discarded and broken ones"},
			&cli.StringFlag{Name: "worktree", Usage: "only those of integration worktree `WT`"},
			&cli.BoolFlag{Name: "radar", Usage: "add whether each would land cleanly"},
			&cli.StringFlag{Name: "format", Usage: "print `FORMAT` for each, with its %(fields) filled in"},
		)...),
		Action: func(c *cli.Context) error {
			if err := program.CheckListingArgs(c); err != nil {
				return err
			}
			spec, err := format.Parse(c.String("format"))
			if err != nil {
				return program.NewUsageError(c, err)
			}
			t.Options.NoGitProbe = true // users run this command again and again
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			broken := 0
			invocations, err := repo.Invocations(c.Context, gitagency.ListRequest{
				All: c.Bool("all"), Worktree: c.String("worktree"), Radar: c.Bool("radar"),
				Activity: !c.IsSet("format") || spec.NeedsActivity(), OnBroken: func(count int) { broken = count },
			})
			switch {
			case err != nil:
				return err
			case c.IsSet("format"):
				return t.printFormat(spec, invocations)
			case c.Bool("json") || c.Bool("porcelain"):
				return program.PrintList(t.Program, c, invocations, invocationFields, nil, nil)
			}
			return t.printInvocations(c, repo, invocations, broken)
		},
	}
}

// printInvocations prints the table of invocations, and says below it what it leaves out or, if it is empty, what to type.
func (t *tool) printInvocations(c *cli.Context, repo *gitagency.Repository, invocations []gitagency.Invocation, broken int) error {
	header := listHeader()
	onPlatform := slices.ContainsFunc(invocations, gitagency.Invocation.RunsOnPlatform)
	if onPlatform {
		header = append(header, "PLATFORM")
	}
	if c.Bool("radar") {
		header = append(header, "RADAR")
	}
	tableID, err := t.TableIDs(c, repo)
	if err != nil {
		return err
	}
	targets, err := worktreeTargets(repo)
	if err != nil {
		return err
	}
	rows := make([][]string, 0, len(invocations))
	for _, i := range invocations {
		id := i.ID
		if !i.Broken { // a broken one is found by its full id only
			id = tableID(id)
		}
		row := t.listRow(i, id, worktreeCell(i, targets))
		if onPlatform {
			row = append(row, platformCell(i))
		}
		if c.Bool("radar") {
			row = append(row, i.Radar)
		}
		rows = append(rows, row)
	}
	if err := t.PrintTable(header, rows, "AGE", "WORKTREE", "CHANGED", "AHEAD"); err != nil {
		return err
	}
	if err := t.Stdout.Flush(); err != nil { // the notes come after the table
		return err
	}
	for _, i := range invocations {
		if i.State == gitagency.StatusBlocked && i.Question != "" {
			fmt.Fprintf(t.Stderr, "%s asks: %s\n", gitagency.ShortID(i.ID), shortQuestion(i.Question))
		}
	}
	if broken > 0 {
		fmt.Fprintf(t.Stderr, "%d broken; 'git agency ls --all' shows %s\n", broken, map[bool]string{true: "it", false: "them"}[broken == 1])
	}
	if err := t.WarnRemovedTrees(repo, func(id string) bool {
		return slices.ContainsFunc(invocations, func(i gitagency.Invocation) bool {
			_, err := i.Path()
			return err == nil && i.WorktreeID == id
		})
	}); err != nil {
		return err
	}
	if len(rows) > 0 || broken > 0 {
		return nil
	}
	if repo.IsPaths() {
		t.PrintHint("there are no sandboxes over plain directories; to make one: git agency start --path <dir>")
		return nil
	}
	present, err := repo.Worktrees(false)
	switch {
	case err != nil:
		return err
	case len(present) == 0:
		if hint := worktrees.FirstSandboxHint(repo); hint != "" {
			t.PrintHint(hint)
		}
	default:
		t.PrintHint("there are no sandboxes; to run an agent in one: git agency run --runner <runner> -p '<task>'")
		more := "'git agency start' makes one without an agent"
		if !c.Bool("all") {
			more += ", and 'git agency ls --all' lists those that have ended"
		}
		t.PrintHint(more)
	}
	return nil
}

// shortQuestion returns a question of an agent on one line of bounded length.
func shortQuestion(question string) string {
	const most = 500 // bytes
	if len(question) <= most {
		return term.OneLine(question)
	}
	return term.OneLine(quote.Shorten(question, most)) + " ('git agency questions' shows all of it)"
}

// listHeader returns the header of the table of invocations.
func listHeader() []string {
	return []string{"ID", "NAME", "WORKTREE", "STATE", "AHEAD", "CHANGED", "AGE"}
}

// listRow returns the row of an invocation in the table.
func (t *tool) listRow(i gitagency.Invocation, id, worktree string) []string {
	return []string{
		id, cmp.Or(i.Name, i.Task), worktree, format.State(i, t.Now()), numberOrUnknown(i, i.Ahead), numberOrUnknown(i, i.Dirty),
		format.ShortDuration(t.Now().Sub(i.StartedAt)),
	}
}

// platformCell returns the platform of an invocation, with its node, or with what its job waits for.
func platformCell(i gitagency.Invocation) string {
	switch {
	case !i.RunsOnPlatform():
		return ""
	case i.PlatformNode != "":
		return i.Primitives.Platform + " " + i.PlatformNode
	case i.HasOpenJob() && i.PlatformDetail != "":
		return i.Primitives.Platform + " (" + i.PlatformDetail + ")"
	case i.HasOpenJob():
		return i.Primitives.Platform + " (" + i.PlatformState + ")"
	}
	return i.Primitives.Platform
}

// worktreeTargets maps the ids of the worktrees to the branches that sandboxes started now would land on.
func worktreeTargets(repo *gitagency.Repository) (map[string]string, error) {
	present, err := repo.Worktrees(false)
	targets := map[string]string{}
	for _, w := range present {
		targets[w.ID] = w.IntegrationBranch()
	}
	return targets, err
}

// worktreeCell returns the worktree of an invocation, with the branch that its work lands on unless that is the branch of
// the worktree now.
func worktreeCell(i gitagency.Invocation, targets map[string]string) string {
	branch := strings.TrimPrefix(i.IntegrationBranch, "refs/heads/")
	if _, err := i.Path(); err != nil || branch == "" || branch == targets[i.WorktreeID] {
		return i.Worktree
	}
	return i.Worktree + " (" + branch + ")"
}

// numberOrUnknown returns a number of an invocation, a question mark if it could not be found out, and nothing for an
// invocation without a sandbox.
func numberOrUnknown(i gitagency.Invocation, n *int) string {
	if _, err := i.Path(); n == nil && err == nil && len(i.Paths) == 0 { // a sandbox over plain directories has no commits
		return "?"
	}
	return format.Number(n)
}

// invocationFields returns the fields of an invocation for --porcelain.
func invocationFields(i gitagency.Invocation) []program.Field {
	return append([]program.Field{
		{Key: "invocation", Value: i.ID},
		{Key: "worktree", Value: i.WorktreeID, Optional: true},
		{Key: "path", Value: i.SandboxPath, Optional: true},
		{Key: "branch", Value: i.SandboxBranch, Optional: true},
		{Key: "base", Value: i.BaseCommit, Optional: true},
		{Key: "from-snapshot", Value: i.FromSnapshot, Optional: true},
		{Key: "clone-source", Value: i.CloneSource, Optional: true},
		{Key: "verifies", Value: i.Verifies, Optional: true},
		{Key: "synced", Value: i.SyncedCommit, Optional: true},
		{Key: "integration-branch", Value: i.IntegrationBranch, Optional: true},
		{Key: "status", Value: i.Status, Optional: true},
		{Key: "status-reason", Value: i.StatusReason, Optional: true},
		{Key: "task", Value: i.Task, Optional: true},
		{Key: "session", Value: i.SessionID, Optional: true},
		{Key: "pid", Value: numberOrEmpty(i.PID), Optional: true},
		{Key: "platform-state", Value: i.PlatformState, Optional: true},
		{Key: "platform-job", Value: i.PlatformJob, Optional: true},
		{Key: "platform-node", Value: i.PlatformNode, Optional: true},
		{Key: "attempt", Value: numberOrEmpty(i.Attempt), Optional: true},
		{Key: "question", Value: i.Question, Optional: true},
		{Key: "landing", Value: i.Landing, Optional: true},
		{Key: "submitted-commit", Value: i.SubmittedCommit, Optional: true},
		{Key: "rejected-reason", Value: i.RejectedReason, Optional: true},
		{Key: "landed-commit", Value: i.LandedCommit, Optional: true},
		{Key: "unlanded-commit", Value: i.UnlandedCommit, Optional: true},
		{Key: "radar", Value: i.Radar, Optional: true},
		{Key: "kept", Value: i.TrashRef, Optional: true},
		{Key: "archive", Value: i.TrashArchive, Optional: true},
		{Key: "name", Value: i.Name, Optional: true},
		{Key: "broken", Value: i.BrokenReason, Optional: true},
		{Key: "state", Value: i.State},
		{Key: "running", Value: trueOrEmpty(i.Running), Optional: true},
		{Key: "exit-code", Value: format.Number(i.ExitCode), Optional: true},
		{Key: "ahead", Value: format.Number(i.Ahead), Optional: true},
		{Key: "dirty", Value: format.Number(i.Dirty), Optional: true},
	}, pathFields(i)...)
}

// pathFields returns one field for each path that was allowed to a sandbox, for each plain directory that it is over, and for each of
// these that was copied.
func pathFields(i gitagency.Invocation) []program.Field {
	var fields []program.Field
	for _, path := range i.AllowedRead {
		fields = append(fields, program.Field{Key: "allowed-read", Value: path})
	}
	for _, path := range i.AllowedWrite {
		fields = append(fields, program.Field{Key: "allowed-write", Value: path})
	}
	for _, path := range i.Paths {
		fields = append(fields, program.Field{Key: "directory", Value: path})
	}
	for _, p := range i.CopiedPaths {
		fields = append(fields, program.Field{Key: "copied", Value: p.Path})
	}
	return fields
}

// numberOrEmpty returns the value of an optional porcelain field that is not printed for zero.
func numberOrEmpty(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// trueOrEmpty returns the value of an optional porcelain field that is printed only if it is true.
func trueOrEmpty(is bool) string {
	if is {
		return "true"
	}
	return ""
}

// printFormat prints each invocation in a format. Values are verbatim, except that on a terminal control characters in
// them are escaped.
func (t *tool) printFormat(spec format.Spec, invocations []gitagency.Invocation) error {
	now, shown := t.Now(), func(value string) string { return value }
	if t.ShowsOnTerminal() {
		shown = term.OneLine
	}
	for _, i := range invocations {
		if _, err := t.Stdout.WriteString(spec.Expand(i, now, shown) + "\n"); err != nil {
			return err
		}
	}
	return nil
}
