package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) discardCommand() *cli.Command {
	return &cli.Command{
		Name:      "discard",
		Usage:     "end invocations, and keep their work",
		UsageText: "git agency discard <id>... [--force]",
		Description: `Removes each sandbox and its branch, and keeps its committed, staged, changed and untracked content as
refs/agency/trash/<id>; ignored files are not kept. Running commands of 'exec' are ended first. A repeated
discard completes an interrupted one. Given the full id of an interrupted 'start', it removes every trace.

What no commit can hold (nested repositories, special files, files that git refuses) is kept in an
archive, trash/<id>.tar beside the records, of at most agency.trashLimit. 'restore' makes a sandbox of
both.

Exit status: 0 discarded; 1 failed; 3 no such invocation; 4 broken; 75 locked; 129 usage.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(
			&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "leave out files that cannot be kept, and list them"},
		)...),
		Action: func(c *cli.Context) error {
			dir, err := t.CurrentDir()
			if err != nil {
				return err
			}
			t.Options.NoGitProbe = true // git was probed when the integration worktree was made
			repo, named, err := t.OpenForInvocations(c)
			if err != nil {
				return err
			}
			return t.discard(c, repo, dir, named)
		},
	}
}

// discard discards invocations, in order, up to the first that fails. dir is the caller's directory.
func (t *tool) discard(c *cli.Context, repo *gitagency.Repository, dir string, named []gitagency.Invocation) error {
	var failed error // invocations before the failed one stay discarded
	results, ids, deferred := []gitagency.DiscardResult{}, []string{}, []string{}
	var cleanupLock *os.File
	var kept []gitagency.DiscardResult // results without a failed removal, of which restore makes a sandbox again
	for _, inv := range named {
		ids = append(ids, inv.ID)
		d, err := repo.DiscardWith(c.Context, gitagency.DiscardRequest{Query: inv.ID, Force: c.Bool("force"), DeferCleanup: true, CleanupLock: cleanupLock})
		if d.CleanupDeferred { // never set by the second discard, so that the process starts no other
			deferred, cleanupLock = append(deferred, d.ID), d.CleanupLock
		}
		if err != nil {
			failed = err
			if hints.Is[*gitagency.CleanupError](err) { // it is discarded, but not all of it is removed
				results = append(results, d)
				t.warnNotKept(d)
			}
			break
		}
		results = append(results, d)
		if len(inv.Paths) > 0 { // a warning has named the snapshot that keeps the changes
			fmt.Fprintf(t.Stderr, "discarded %s; its directories stay as they are\n", d.ID)
			kept = append(kept, d)
			continue
		}
		t.reportDiscarded(d)
		kept = append(kept, d)
	}
	t.hintRestore(kept)
	t.RemoveInBackground(repo, dir, "discard", ids, deferred, cleanupLock)
	if c.Bool("json") {
		return errors.Join(failed, t.PrintJSON(results))
	}
	return failed
}

func (t *tool) reportDiscarded(d gitagency.DiscardResult) {
	if d.EndedCommands > 0 {
		fmt.Fprintf(t.Stderr, "ended %s that still ran in %s\n", format.Count(d.EndedCommands, "command", "commands"), d.ID)
	}
	switch {
	case d.CreationUndone:
		fmt.Fprintf(t.Stderr, "undid the interrupted creation of %s\n", d.ID)
	case d.Already:
		fmt.Fprintf(t.Stderr, "%s was discarded before\n", d.ID)
	case d.TrashRef == "" && d.TrashArchive == "":
		fmt.Fprintf(t.Stderr, "discarded %s; there was nothing to keep\n", d.ID)
	case d.TrashRef == "":
		fmt.Fprintf(t.Stderr, "discarded %s\n", d.ID)
	default:
		fmt.Fprintf(t.Stderr, "discarded %s; its work is kept as %s\n", d.ID, d.TrashRef)
	}
	if d.TrashArchive != "" {
		fmt.Fprintf(t.Stderr, "files that no commit can hold are kept as an archive: %s (%s)\n", d.TrashArchive, gitagency.FormatSize(d.ArchiveSize))
	}
	for _, file := range d.Lost {
		t.Warn("lost " + file)
	}
}

// hintRestore says how to make sandboxes again of those whose content is kept.
func (t *tool) hintRestore(results []gitagency.DiscardResult) {
	var kept []string
	for _, d := range results {
		if (d.TrashRef != "" || d.TrashArchive != "") && !slices.Contains(kept, d.ID) {
			kept = append(kept, d.ID)
		}
	}
	switch len(kept) {
	case 0:
	case 1:
		t.PrintHint("to make a sandbox of it again: git agency restore " + kept[0])
	default:
		t.PrintHint("to make a sandbox of one of them again: git agency restore <id>, with one of " + strings.Join(kept, ", "))
	}
}

// warnNotKept names the files of a sandbox that are not kept, and may still be there because the removal failed.
func (t *tool) warnNotKept(d gitagency.DiscardResult) {
	for _, file := range d.Lost {
		t.Warn("not kept: " + file)
	}
}
