package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) snapshotLsCommand() *cli.Command {
	return &cli.Command{
		Name:      "ls",
		Aliases:   []string{"list"},
		Usage:     "list the snapshots of a sandbox",
		UsageText: "git agency snapshot ls [<id>] [--json | --porcelain [-z]]",
		Description: `Lists the snapshots of an invocation by number, with commit, message, and files and lines changed since the
previous snapshot; for the first, since the base commit. Works also for an ended invocation, until it is
pruned.

Exit status: 0, whatever is found; 3 no such invocation, or 4 if the repository was moved; 129 usage.`,
		Flags: program.WithListingFlags(),
		Action: func(c *cli.Context) error {
			repo, query, err := t.OpenForOptionalQuery(c)
			if err != nil {
				return err
			}
			taken, err := repo.Snapshots(c.Context, gitagency.SnapshotsRequest{Invocation: query})
			if err != nil {
				return err
			}
			return program.PrintList(t.Program, c, taken, snapshotFields,
				[]string{"NUMBER", "COMMIT", "TAKEN", "FILES", "LINES", "MESSAGE"},
				func(s gitagency.SnapshotInfo) []string {
					files, lines := "?", "?"
					if s.Counted {
						files, lines = strconv.Itoa(s.Files), fmt.Sprintf("+%d -%d", s.Insertions, s.Deletions)
					}
					return []string{strconv.Itoa(s.Number), format.ShortOID(s.ID), term.Ago(t.Now(), s.TakenAt), files, lines, s.Subject()}
				})
		},
	}
}

// snapshotFields returns the fields of a snapshot for --porcelain.
func snapshotFields(s gitagency.SnapshotInfo) []program.Field {
	fields := []program.Field{
		{Key: "snapshot", Value: s.ID},
		{Key: "invocation", Value: s.Invocation},
		{Key: "number", Value: strconv.Itoa(s.Number)},
		{Key: "ref", Value: s.Ref},
		{Key: "parent", Value: s.Parent, Optional: true},
		{Key: "tree", Value: s.Tree},
		{Key: "base", Value: s.Base, Optional: true},
		{Key: "head", Value: s.Head, Optional: true},
		{Key: "index", Value: s.Index, Optional: true},
		{Key: "taken", Value: s.TakenAt.Format(time.RFC3339)},
		{Key: "tool", Value: s.Tool, Optional: true},
	}
	if s.Counted {
		fields = append(fields,
			program.Field{Key: "files", Value: strconv.Itoa(s.Files)},
			program.Field{Key: "insertions", Value: strconv.Itoa(s.Insertions)},
			program.Field{Key: "deletions", Value: strconv.Itoa(s.Deletions)})
	}
	return append(fields, program.Field{Key: "message", Value: s.Message, Optional: true})
}
