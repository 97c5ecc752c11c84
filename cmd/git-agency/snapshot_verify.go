package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) snapshotVerifyCommand() *cli.Command {
	return &cli.Command{
		Name:      "verify",
		Usage:     "hash every object of a snapshot again and report damage",
		UsageText: "git agency snapshot verify <snapshot> [--json]",
		Description: `Reads and hashes every object that the commit of a snapshot reaches: files, trees and history. A missing or
altered object is printed with its kind and a path. Nothing is changed or fetched.
<snapshot> is its commit, in full or as a unique prefix, or <id>/<n>.

Exit status: 0 all are sound; 3 no such snapshot; 4 damaged, and the damage is listed; 129 usage.`,
		Flags: program.WithJSONFlag(),
		Action: func(c *cli.Context) error {
			args, err := program.PositionalArgs(c, 1, 1)
			if err != nil {
				return err
			}
			repo, err := t.OpenRepository(c)
			if err != nil {
				return err
			}
			report, end := term.StartProgress(t.RawStderr, t.ProgressClock, "verify", func(objects int) string { return format.Count(objects, "object", "objects") })
			verified, err := repo.VerifySnapshot(c.Context, gitagency.VerifySnapshotRequest{Snapshot: args[0], Progress: report})
			end()
			switch {
			case err != nil:
				return err
			case c.Bool("json"):
				err = t.PrintJSON(verified)
			default:
				err = t.printVerification(verified)
			}
			return errors.Join(err, verified.Err())
		},
	}
}

// printVerification prints the damaged objects of a snapshot, then a summary and the objects that were not checked.
func (t *tool) printVerification(v gitagency.VerifySnapshotResult) error {
	var b strings.Builder
	for _, d := range v.Damage {
		fmt.Fprintf(&b, "%s %s", d.ID, d.Kind)
		if d.Path != "" {
			b.WriteString(" " + d.Path)
		}
		b.WriteString(": " + d.Problem)
		if d.Detail != "" {
			b.WriteString(" (" + d.Detail + ")")
		}
		b.WriteByte('\n')
	}
	if v.Intact {
		fmt.Fprintf(&b, "%s: %s re-hashed, all sound\n", v.ID, format.Count(v.Objects, "object", "objects"))
	} else {
		fmt.Fprintf(&b, "%s: %s re-hashed and sound, %d damaged\n", v.ID, format.Count(v.Objects, "object", "objects"), len(v.Damage))
	}
	if n := len(v.ShallowCommits); n > 0 {
		fmt.Fprintf(&b, "the parents of %s are not in this shallow repository, and were not checked\n", format.Count(n, "commit", "commits"))
	}
	if v.Promised > 0 {
		fmt.Fprintf(&b, "%s of this partial clone are only at a remote, and were not checked\n", format.Count(v.Promised, "object", "objects"))
	}
	if v.StoppedEarly {
		b.WriteString("too much damage: the rest was not checked\n")
	}
	_, err := t.Stdout.WriteString(term.Printable(b.String()))
	return err
}
