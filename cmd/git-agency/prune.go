package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) pruneCommand() *cli.Command {
	return &cli.Command{
		Name:      "prune",
		Usage:     "remove landed and discarded invocations that have expired",
		UsageText: "git agency prune [-n | --dry-run] [--expire <when>] [--json | --porcelain [-z]]",
		Description: `Removes invocations that were landed or discarded before <when>, with their records, trash refs,
archives and snapshots; remains of ended sandboxes; expired trash refs without a record; and remains of killed
processes. Prints why everything else is kept. Files written to a sandbox after it ended are first kept
as trash, with a new date.

<when> is as in git: 2.weeks.ago, 2026-01-28, now or never. The objects of a removed ref stay until git
collects them; until then 'git branch <name> <commit>' restores it. A removed archive cannot be restored.

Exit status: 0 done, whatever is kept; 1 something failed, the rest was done; 75 locked; 129 usage.`,
		Flags: program.WithRepositoryLockFlag(program.WithListingFlags(
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "print exactly what would be done, and remove nothing"},
			&cli.StringFlag{Name: "expire", Usage: "remove what ended before `WHEN`", DefaultText: "agency.pruneAfter, else 2.weeks.ago"},
		)...),
		Action: func(c *cli.Context) error {
			if err := program.CheckListingArgs(c); err != nil {
				return err
			}
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			req := gitagency.PruneRequest{Expire: c.String("expire"), DryRun: c.Bool("dry-run")}
			if !c.Bool("json") && !c.Bool("porcelain") {
				req.OnExpiry = t.reportExpiry
			}
			pruned, failed := repo.Prune(c.Context, req)
			if pruned == nil {
				return failed
			}
			if c.Bool("json") || c.Bool("porcelain") {
				return errors.Join(failed, program.PrintList(t.Program, c, pruned, prunedFields, nil, nil))
			}
			return errors.Join(failed, t.printPruned(pruned, repo.IsPaths()))
		},
	}
}

// reportExpiry prints the time that --expire resolved to.
func (t *tool) reportExpiry(before time.Time) {
	if before.IsZero() {
		fmt.Fprintln(t.Stderr, "nothing expires")
		return
	}
	fmt.Fprintf(t.Stderr, "expired: everything that ended before %s\n", before.Format(time.RFC3339))
}

// prunedFields returns the fields of a prune result for --porcelain.
func prunedFields(p gitagency.PruneResult) []program.Field {
	dry, archiveSize := "", ""
	if p.DryRun {
		dry = "true"
	}
	if p.TrashArchive != "" {
		archiveSize = strconv.FormatInt(p.ArchiveSize, 10)
	}
	fields := []program.Field{
		{Key: "action", Value: p.Action},
		{Key: "kind", Value: p.Kind},
		{Key: "id", Value: p.ID, Optional: true},
		{Key: "path", Value: p.Path, Optional: true},
		{Key: "kept", Value: p.TrashRef, Optional: true},
		{Key: "commit", Value: p.TrashCommit, Optional: true},
		{Key: "reason", Value: p.Reason},
		{Key: "broken", Value: p.BrokenReason, Optional: true},
		{Key: "dry-run", Value: dry, Optional: true},
		{Key: "archive", Value: p.TrashArchive, Optional: true},
		{Key: "archive-size", Value: archiveSize, Optional: true},
	}
	for _, s := range p.Snapshots {
		fields = append(fields, program.Field{Key: "snapshot", Value: s.Commit + " " + s.Ref})
	}
	return fields
}

// printPruned prints for people a line for each record and leftover: what was done with it, and why. The trash commits of sandboxes
// over plain directories (onPaths) have none of their files.
func (t *tool) printPruned(pruned []gitagency.PruneResult, onPaths bool) error {
	gone, broken := false, false
	for _, p := range pruned {
		if onPaths {
			p.TrashCommit = ""
		}
		went := p.Action == gitagency.PruneRemove && !p.DryRun && (p.TrashCommit != "" || len(p.Snapshots) > 0)
		gone, broken = gone || went, broken || p.BrokenReason != ""
		if err := t.PrintLine(strings.ReplaceAll(term.Printable(format.Pruned(p)), "\n", `\n`)); err != nil {
			return err
		}
	}
	if err := t.Stdout.Flush(); err != nil { // print hints after the results
		return err
	}
	if archives := format.PrunedArchives(pruned); archives != "" {
		fmt.Fprintln(t.Stderr, archives)
	}
	if gone {
		t.PrintHint("until git collects its objects, 'git branch <name> <commit>' restores a removed ref")
	}
	if broken {
		t.PrintHint("'git agency doctor' says what is broken, and how to repair it")
	}
	return nil
}
