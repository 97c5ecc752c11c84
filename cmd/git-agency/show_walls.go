package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
	"github.com/git-agency/git-agency/gitagency/reason"
)

// showWalls prints what the commands of a sandbox can read, write and reach: of the named one, else of that around the
// current directory, else of a new one.
func (t *tool) showWalls(c *cli.Context) error {
	query, err := program.OptionalArg(c)
	if err == nil {
		err = program.CheckOutputFlags(c)
	}
	if err != nil {
		return err
	}
	repo, err := t.OpenRepository(c)
	if err != nil {
		return err
	}
	if query == "" {
		inv, err := repo.CurrentInvocation()
		var state *gitagency.StateError
		if err != nil && !(errors.As(err, &state) && state.Reason == reason.NotInSandbox) {
			return err
		}
		query = inv.ID
	}
	w, err := repo.Walls(c.Context, query)
	if err != nil {
		return err
	}
	for _, skipped := range w.Skipped {
		t.Warn("ignoring " + term.OneLine(skipped))
	}
	switch {
	case c.Bool("json"):
		return t.PrintJSON(w)
	case c.Bool("porcelain"):
		return t.printWallBlocks(c, w)
	}
	return t.printWalls(w)
}

// printWallBlocks prints one block for each path and target.
func (t *tool) printWallBlocks(c *cli.Context, w gitagency.Walls) error {
	for _, p := range w.Paths {
		fields := []program.Field{{Key: p.Access, Value: p.Path}, {Key: "reason", Value: p.Reason}, {Key: "detail", Value: p.Detail}, {Key: "pending", Value: p.Pending, Optional: true}}
		if err := t.PrintBlock(c.Bool("z"), fields); err != nil {
			return err
		}
	}
	for _, g := range w.Targets {
		fields := []program.Field{{Key: "reachable", Value: g.Target}, {Key: "reason", Value: g.Reason}, {Key: "detail", Value: g.Detail}, {Key: "pending", Value: trueOrEmpty(g.Pending), Optional: true}}
		if err := t.PrintBlock(c.Bool("z"), fields); err != nil {
			return err
		}
	}
	return nil
}

// accessTitles are the headings of the kinds of access.
var accessTitles = map[string]string{
	"readable": "readable",
	"writable": "writable",
	"layered":  "layered: writable, and only the sandbox sees the changes",
	"private":  "private: writable, and begins empty",
	"own":      "of the sandbox instead of this machine",
	"copied":   "copied into the private home",
	"filtered": "readable without credentials",
	"hidden":   "hidden",
}

// printWalls prints walls for people: a heading for each kind of access, then one line for each path. It is no table,
// because paths must not be cut.
func (t *tool) printWalls(w gitagency.Walls) error {
	var b strings.Builder
	if len(w.Names) == 0 {
		b.WriteString("no walls: commands can do what you can (isolation " + w.Isolation + ", outputs " + w.Outputs + ")\n")
	} else if len(w.Paths) == 0 {
		b.WriteString("no walls around files: commands can read and write what you can (isolation " + w.Isolation + ")\n")
	}
	access, width := "", 0
	for _, p := range w.Paths {
		width = max(width, min(len(quote.Path(p.Path)), 48))
	}
	line := func(path, detail, pending string) {
		fmt.Fprintf(&b, "  %-*s  %s%s\n", width, quote.Path(path), term.OneLine(detail), pending)
	}
	for _, p := range w.Paths {
		if p.Access != access {
			access = p.Access
			b.WriteString(t.PaintResult("name", accessTitles[access]) + "\n")
		}
		pending := ""
		if p.Pending != "" {
			pending = " (not " + p.Pending + " until the running commands have ended)"
		}
		line(p.Path, p.Detail, pending)
	}
	if len(w.Targets) > 0 {
		b.WriteString(t.PaintResult("name", "reachable") + "\n")
	}
	for _, g := range w.Targets {
		pending := ""
		if g.Pending {
			pending = " (not until the running commands have ended)"
		}
		line(g.Target, g.Detail, pending)
	}
	_, err := t.Stdout.WriteString(b.String())
	return err
}
