package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) denialsCommand() *cli.Command {
	return &cli.Command{
		Name:      "denials",
		Usage:     "list connections that a sandbox was refused",
		UsageText: "git agency denials <id> [--json | --porcelain [-z]]",
		Description: `Lists the connections that the proxy of a sandbox refused, latest last: time, protocol, target, count and
reason, and the command that allows it; for an ended invocation, the one that starts a sandbox in which it
is allowed.

Files that the kernel refused, and connections with --outputs none, cannot be listed; 'git agency show
--walls' says what is readable, writable and reachable.

Exit status: 0, whatever is found; 1 the history cannot be read; 3 no such invocation; 4 listed, but it
is broken, or the repository was moved; 129 usage.`,
		Flags: program.WithListingFlags(),
		Action: func(c *cli.Context) error {
			repo, query, err := t.OpenForQuery(c)
			if err != nil {
				return err
			}
			denials, broken := repo.Denials(query)
			if broken != nil && !hints.Is[*gitagency.BrokenError](broken) {
				return broken
			}
			if c.Bool("json") || c.Bool("porcelain") {
				err = program.PrintList(t.Program, c, denials, denialFields, nil, nil)
			} else {
				err = t.printDenials(repo, query, denials)
			}
			if err != nil {
				return err
			}
			return broken
		},
	}
}

// printDenials prints denials for people. It is no table, because the last part, the command that allows the
// connection, must not be cut. An empty result is reported too: the user has probably just seen a connection fail.
func (t *tool) printDenials(repo *gitagency.Repository, query string, denials []gitagency.Denial) error {
	if len(denials) == 0 {
		return t.explainNoDenials(repo, query)
	}
	style, err := t.Style()
	if err != nil {
		return err
	}
	for _, d := range denials {
		target := term.OneLine(d.Target)
		text := fmt.Sprintf("%s %s, %s, %s: %s\n", term.OneLine(d.Kind), style.Paint("id", target, target),
			format.Count(d.Count, "time", "times"), term.Ago(t.Now(), d.Time), term.OneLine(d.Reason))
		if d.Allow != "" {
			text += "  allow  " + term.OneLine(d.Allow) + "\n"
		}
		if _, err := t.Stdout.WriteString(text); err != nil {
			return err
		}
	}
	return nil
}

// explainNoDenials says why there are no refused connections on record: only the proxy of --outputs hosts: records them.
func (t *tool) explainNoDenials(repo *gitagency.Repository, query string) error {
	inv, err := repo.Invocation(query)
	if err != nil {
		return err
	}
	_, ended := inv.Path()
	switch outputs := inv.Primitives.Outputs; {
	case outputs == "none" && ended == nil:
		fmt.Fprintln(t.Stderr, "this sandbox has no network: its connections fail without a record")
		t.PrintHint("to allow it a host: git agency allow " + inv.ID + " --outputs hosts:<host>")
	case outputs == "none":
		fmt.Fprintln(t.Stderr, "this sandbox had no network: its connections failed without a record")
	case outputs == "open":
		fmt.Fprintln(t.Stderr, "this sandbox uses the network of this machine: none of its connections is refused")
	default:
		fmt.Fprintln(t.Stderr, "no refused connections on record; connections that bypass the proxy fail without a record")
	}
	return nil
}

// denialFields returns the fields of a denial for --porcelain.
func denialFields(d gitagency.Denial) []program.Field {
	return []program.Field{
		{Key: "denied", Value: d.Target},
		{Key: "kind", Value: d.Kind},
		{Key: "time", Value: d.Time.Format(time.RFC3339)},
		{Key: "count", Value: strconv.Itoa(d.Count)},
		{Key: "reason", Value: d.Reason},
		{Key: "entry", Value: d.Entry, Optional: true},
		{Key: "allow", Value: d.Allow, Optional: true},
	}
}
