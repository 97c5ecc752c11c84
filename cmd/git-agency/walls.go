package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
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
		if shown := quote.Path(path); detail != "" {
			fmt.Fprintf(&b, "  %-*s  %s%s\n", width, shown, term.OneLine(detail), pending)
		}
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

func (t *tool) allowCommand() *cli.Command {
	return &cli.Command{
		Name:  "allow",
		Usage: "let a sandbox read, write or reach more",
		UsageText: `git agency allow <id> [--outputs open|hosts:<list>] [--read <path>]... [--write <path>]...
                        [--memory <size>] [--processes <n>] [--file-size <size>] [--timeout <t>] [--nice <n>]
                        [--best-effort-limits] [--reset] [-n] [--json]`,
		Description: `Widens what the commands of a sandbox may use, from the next command on, and records it. Hosts are added to
those that the sandbox has. A path with --read can be read; with --write it can be written, and with
--write private:<path> the sandbox alone sees the changes. The same paths are refused as in
agency.sandbox.read and agency.sandbox.write. Limits can only be raised; --timeout -1 removes that one.

--reset takes back everything that was allowed since the start; with other options, before they count.

Commands that run already keep their walls, and later commands share these until the last of them has
ended; a message says what is not in force until then. Commands in a sandbox cannot use 'allow'. 'git agency
show --walls <id>' lists what is readable, writable and reachable.

Exit status: 0 allowed, or it was before; 1 failed, nothing changed; 3 no such invocation; 4 broken; 5
refused for safety; 75 locked; 129 usage.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(append([]cli.Flag{
			&cli.StringFlag{Name: "outputs", Usage: "network access to add: `POLICY`"},
			&cli.GenericFlag{Name: "read", Value: &argv.RepeatedFlag{}, Usage: "make `PATH` readable; may be repeated"},
			&cli.GenericFlag{Name: "write", Value: &argv.RepeatedFlag{}, Usage: "make `PATH` writable; may be repeated"},
			&cli.StringFlag{Name: "timeout", Usage: "end each command after `DURATION`; -1: never"},
			&cli.BoolFlag{Name: "reset", Usage: "take back what was allowed since the start"},
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "check and print, change nothing"},
		}, limitFlags()...)...)...),
		Action: t.allow,
	}
}

func (t *tool) allow(c *cli.Context) error {
	args, err := program.PositionalArgs(c, 1, 1)
	if err != nil {
		return err
	}
	limits, err := parseLimits(c)
	if err == nil {
		err = parseLimit(c, gitagency.TimeoutLimit, &limits.Timeout)
	}
	if err != nil {
		return err
	}
	req := gitagency.AllowRequest{
		Invocation: args[0], Reset: c.Bool("reset"), Outputs: c.String("outputs"), Read: repeatedValues(c, "read"), Write: repeatedValues(c, "write"),
		Limits: limits, DryRun: c.Bool("dry-run"),
	}
	if !req.Reset && req.Outputs == "" && len(req.Read)+len(req.Write) == 0 && limits == (gitagency.Limits{}) && !c.IsSet("outputs") {
		return program.NewUsageError(c, errors.New("say what to allow: --outputs, --read, --write, a limit, or --reset"))
	}
	repo, err := t.OpenRepository(c)
	if err != nil {
		return err
	}
	done, err := repo.Allow(c.Context, req)
	if err != nil {
		return err
	}
	t.reportAllowed(done, req.DryRun)
	if c.Bool("json") {
		return t.PrintJSON(done)
	}
	return nil
}

// repeatedValues returns the values of a flag that may be repeated.
func repeatedValues(c *cli.Context, name string) []string {
	repeated, _ := c.Generic(name).(*argv.RepeatedFlag)
	if repeated == nil {
		return nil
	}
	return repeated.Values
}

// reportAllowed says what a sandbox is allowed now, and what of it has to wait.
func (t *tool) reportAllowed(done gitagency.AllowResult, dryRun bool) {
	words := []string{"outputs " + done.Outputs}
	for _, path := range done.Read {
		words = append(words, "readable "+quote.Path(path))
	}
	for _, path := range done.Write {
		words = append(words, "writable "+quote.Path(path))
	}
	for _, f := range limitDetails(done.Limits) {
		if f.Value != "" {
			words = append(words, f.Key+" "+f.Value)
		}
	}
	what := t.PaintSuccess("allowed") + " for " + done.ID + ", from the next command on"
	switch {
	case !done.Changed:
		what = "nothing to change for " + done.ID
	case dryRun:
		what = "would be allowed for " + done.ID
	}
	fmt.Fprintf(t.Stderr, "%s: %s\n", what, strings.Join(words, ", "))
	for _, path := range done.Pending {
		t.Warn(fmt.Sprintf("%s is in force only when the commands have ended that run in sandbox %s now: they, and commands that join them, keep their walls", quote.Path(path), done.ID))
	}
}
