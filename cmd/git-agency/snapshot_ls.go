package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) snapshotLsCommand() *cli.Command {
	return &cli.Command{
		Name:      "ls",
		Aliases:   []string{"list"},
		Usage:     "list the snapshots of a sandbox",
		UsageText: "git agency snapshot ls <id> [--json | --porcelain [-z]]",
		Description: `Lists the snapshots of an invocation by number, with commit, message, and files and lines changed since the
previous snapshot; for the first, since the base commit. Works also for an ended invocation, until it is
pruned.

Exit status: 0, whatever is found; 3 no such invocation; 129 usage.`,
		Flags: withListingFlags(),
		Action: func(c *cli.Context) error {
			repo, query, err := t.openForQuery(c)
			if err != nil {
				return err
			}
			taken, err := repo.Snapshots(c.Context, gitagency.SnapshotsRequest{Invocation: query})
			if err != nil {
				return err
			}
			return printList(t, c, taken, snapshotFields,
				[]string{"NUMBER", "COMMIT", "TAKEN", "FILES", "LINES", "MESSAGE"},
				func(s gitagency.SnapshotInfo) []string {
					files, lines := "?", "?"
					if s.Counted {
						files, lines = strconv.Itoa(s.Files), fmt.Sprintf("+%d -%d", s.Insertions, s.Deletions)
					}
					return []string{strconv.Itoa(s.Number), format.ShortOID(s.ID), term.Ago(t.now(), s.TakenAt), files, lines, s.Subject()}
				})
		},
	}
}

// snapshotFields returns the fields of a snapshot for --porcelain.
func snapshotFields(s gitagency.SnapshotInfo) []field {
	fields := []field{
		{"snapshot", s.ID, false},
		{"invocation", s.Invocation, false},
		{"number", strconv.Itoa(s.Number), false},
		{"ref", s.Ref, false},
		{"parent", s.Parent, true},
		{"tree", s.Tree, false},
		{"base", s.Base, true},
		{"head", s.Head, true},
		{"index", s.Index, true},
		{"taken", s.TakenAt.Format(time.RFC3339), false},
		{"tool", s.Tool, true},
	}
	if s.Counted {
		fields = append(fields,
			field{"files", strconv.Itoa(s.Files), false},
			field{"insertions", strconv.Itoa(s.Insertions), false},
			field{"deletions", strconv.Itoa(s.Deletions), false})
	}
	return append(fields, field{"message", s.Message, true})
}
