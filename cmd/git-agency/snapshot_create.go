package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) snapshotCreateCommand() *cli.Command {
	return &cli.Command{
		Name:      "create",
		Usage:     "take a snapshot of a sandbox and print its commit",
		UsageText: "git agency snapshot create [<id>] [-m <message>] [--include-ignored] [--include-secrets]",
		Description: `Writes the state of a sandbox (committed, staged, changed and untracked files) as a commit under
refs/agency/snapshots/<id>/<n>; ignored files are left out. Nothing in the sandbox changes, and commands may
run in it meanwhile: the snapshot is one consistent state, or none is taken. If nothing has changed since
the last snapshot, prints that one.

Untracked files that look like credentials (see agency.secret) and repositories inside the sandbox are left
out, and named on standard error.

Exit status: 0 taken, or nothing has changed; 1 failed, or it has no sandbox any more; 3 no such
invocation; 4 broken; 5 refused for safety; 75 locked; 129 usage.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(
			&cli.StringFlag{Name: "message", Aliases: []string{"m"}, Usage: "the `MESSAGE` of the commit"},
			&cli.BoolFlag{Name: "include-ignored", Usage: "include ignored files"},
			&cli.BoolFlag{Name: "include-secrets", Usage: "include untracked files that look like credentials"},
		)...),
		Action: func(c *cli.Context) error {
			query, err := program.OptionalArg(c)
			if err != nil {
				return err
			}
			t.Options.NoGitProbe = true // agents take a snapshot between any two steps
			sandbox, err := t.OpenSandbox(c, query)
			if err != nil {
				return err
			}
			snapshot, err := sandbox.TakeSnapshot(c.Context, snapshotRequest(c))
			if err != nil {
				return err
			}
			return t.printSnapshot(c, snapshot)
		},
	}
}

func snapshotRequest(c *cli.Context) gitagency.SnapshotRequest {
	return gitagency.SnapshotRequest{
		Message: c.String("message"), IncludeIgnored: c.Bool("include-ignored"), IncludeSecrets: c.Bool("include-secrets"),
	}
}

// printSnapshot prints a snapshot that was taken, or is still current.
func (t *tool) printSnapshot(c *cli.Context, snapshot gitagency.Snapshot) error {
	t.warnLeftOut(snapshot.LeftOut)
	if !snapshot.Created {
		kept := ""
		if c.IsSet("message") {
			kept = ", which keeps its message"
		}
		fmt.Fprintf(t.Stderr, "nothing changed since snapshot %d%s\n", snapshot.Number, kept)
	}
	if c.Bool("json") {
		return t.PrintJSON(snapshot)
	}
	return t.PrintLine(snapshot.ID)
}

// warnLeftOut warns of each file of the sandbox that is not in its snapshot.
func (t *tool) warnLeftOut(all []gitagency.LeftOut) {
	secret := false
	for _, l := range all {
		secret = secret || l.Reason == gitagency.LeftOutSecret
		t.Warn(format.LeftOut(l))
	}
	if secret {
		t.PrintHint("--include-secrets includes files that look like credentials; to always include a name: git config --add agency.secret '!<name>'")
	}
}
