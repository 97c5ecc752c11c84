package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
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
		Flags: withRepositoryLockFlag(withListingFlags(
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "print exactly what would be done, and remove nothing"},
			&cli.StringFlag{Name: "expire", Usage: "remove what ended before `WHEN`", DefaultText: "agency.pruneAfter, else 2.weeks.ago"},
		)...),
		Action: func(c *cli.Context) error {
			if err := checkListingArgs(c); err != nil {
				return err
			}
			repo, err := t.openRepository(c)
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
				return errors.Join(failed, printList(t, c, pruned, prunedFields, nil, nil))
			}
			return errors.Join(failed, t.printPruned(pruned))
		},
	}
}

// reportExpiry prints the time that --expire resolved to.
func (t *tool) reportExpiry(before time.Time) {
	if before.IsZero() {
		fmt.Fprintln(t.stderr, "nothing expires")
		return
	}
	fmt.Fprintf(t.stderr, "expired: everything that ended before %s\n", before.Format(time.RFC3339))
}

// prunedFields returns the fields of a prune result for --porcelain.
func prunedFields(p gitagency.PruneResult) []field {
	dry, archiveSize := "", ""
	if p.DryRun {
		dry = "true"
	}
	if p.TrashArchive != "" {
		archiveSize = strconv.FormatInt(p.ArchiveSize, 10)
	}
	fields := []field{
		{"action", p.Action, false},
		{"kind", p.Kind, false},
		{"id", p.ID, true},
		{"path", p.Path, true},
		{"kept", p.TrashRef, true},
		{"commit", p.TrashCommit, true},
		{"reason", p.Reason, false},
		{"broken", p.BrokenReason, true},
		{"dry-run", dry, true},
		{"archive", p.TrashArchive, true},
		{"archive-size", archiveSize, true},
	}
	for _, s := range p.Snapshots {
		fields = append(fields, field{"snapshot", s.Commit + " " + s.Ref, false})
	}
	return fields
}

// printPruned prints for people a line for each record and leftover: what was done with it, and why.
func (t *tool) printPruned(pruned []gitagency.PruneResult) error {
	gone, broken := false, false
	for _, p := range pruned {
		went := p.Action == gitagency.PruneRemove && !p.DryRun && (p.TrashCommit != "" || len(p.Snapshots) > 0)
		gone, broken = gone || went, broken || p.BrokenReason != ""
		if err := t.printLine(strings.ReplaceAll(term.Printable(format.Pruned(p)), "\n", `\n`)); err != nil {
			return err
		}
	}
	if err := t.stdout.Flush(); err != nil { // print hints after the results
		return err
	}
	if archives := format.PrunedArchives(pruned); archives != "" {
		fmt.Fprintln(t.stderr, archives)
	}
	if gone {
		t.printHint("until git collects its objects, 'git branch <name> <commit>' restores a removed ref")
	}
	if broken {
		t.printHint("'git agency doctor' says what is broken, and how to repair it")
	}
	return nil
}
