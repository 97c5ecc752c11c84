package main

import (
	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) lsCommand() *cli.Command {
	return &cli.Command{
		Name:      "ls",
		Aliases:   []string{"list"},
		Usage:     "list invocations",
		UsageText: "git agency ls [--all] [--worktree <wt>] [--radar] [--format <format> | --json | --porcelain [-z]]",
		Description: `Lists the invocations that are neither landed nor discarded nor broken, oldest first.

In <format>, %(<field>) is a field of the JSON output, as in '%(invocation_id) %(status)'; %% is a percent
sign, and %00, %0a and so on are bytes, as in 'git for-each-ref'. Each invocation ends with a newline. An
unknown field is refused, and the known ones are listed.

--radar adds the result of 'git agency radar': clean, conflicts(<paths>) with the integration branch,
rivals(<sandboxes>), clean but in conflict with that many other sandboxes, nothing to land, refused, or
error.

Exit status: 0, whatever is found; 3 no such worktree; 129 usage.`,
		Flags: withListingFlags(
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "include landed, discarded and broken ones"},
			&cli.StringFlag{Name: "worktree", Usage: "only those of integration worktree `WT`"},
			&cli.BoolFlag{Name: "radar", Usage: "add whether each would land cleanly"},
			&cli.StringFlag{Name: "format", Usage: "print `FORMAT` for each, with its %(fields) filled in"},
		),
		Action: func(c *cli.Context) error {
			if err := checkListingArgs(c); err != nil {
				return err
			}
			spec, err := format.Parse(c.String("format"))
			if err != nil {
				return newUsageError(c, err)
			}
			repo, err := t.openRepository(c)
			if err != nil {
				return err
			}
			invocations, err := repo.Invocations(c.Context, gitagency.ListRequest{All: c.Bool("all"), Worktree: c.String("worktree"), Radar: c.Bool("radar")})
			if err != nil {
				return err
			}
			header := []string{"ID", "NAME", "WORKTREE", "RUNNER", "STATUS", "BASE", "STARTED"}
			if c.Bool("radar") {
				header = append(header, "RADAR")
			}
			if c.IsSet("format") {
				return t.printFormat(spec, invocations)
			}
			return printList(t, c, invocations, invocationFields, header, func(i gitagency.Invocation) []string {
				return []string{i.ID, i.Name, i.Worktree, i.Runner, format.State(i), format.ShortOID(i.BaseCommit), term.Ago(t.now(), i.StartedAt), i.Radar}[:len(header)]
			})
		},
	}
}

// invocationFields returns the fields of an invocation for --porcelain.
func invocationFields(i gitagency.Invocation) []field {
	return []field{
		{"invocation", i.ID, false},
		{"worktree", i.WorktreeID, true},
		{"path", i.SandboxPath, true},
		{"branch", i.SandboxBranch, true},
		{"base", i.BaseCommit, true},
		{"from-snapshot", i.FromSnapshot, true},
		{"verifies", i.Verifies, true},
		{"synced", i.SyncedCommit, true},
		{"status", i.Status, true},
		{"landing", i.Landing, true},
		{"submitted-commit", i.SubmittedCommit, true},
		{"rejected-reason", i.RejectedReason, true},
		{"landed-commit", i.LandedCommit, true},
		{"unlanded-commit", i.UnlandedCommit, true},
		{"radar", i.Radar, true},
		{"kept", i.TrashRef, true},
		{"archive", i.TrashArchive, true},
		{"name", i.Name, true},
		{"broken", i.BrokenReason, true},
	}
}

// printFormat prints each invocation in a format. Values are verbatim, except that on a terminal control characters in
// them are escaped.
func (t *tool) printFormat(spec format.Spec, invocations []gitagency.Invocation) error {
	now, shown := t.now(), func(value string) string { return value }
	if t.showsOnTerminal() {
		shown = term.OneLine
	}
	for _, i := range invocations {
		if _, err := t.stdout.WriteString(spec.Expand(i, now, shown) + "\n"); err != nil {
			return err
		}
	}
	return nil
}
