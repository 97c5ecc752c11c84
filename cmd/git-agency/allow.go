package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/startflags"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

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
ended; a message says what does not change until then. After a change of --outputs, other than added hosts,
further commands are refused until the running ones end (125), and after --reset they may be. Commands in a
sandbox cannot use 'allow'. 'git agency show --walls <id>' lists what is readable, writable and reachable.

Exit status: 0 allowed, or it was before; 1 failed, nothing changed; 3 no such invocation; 4 broken; 5
refused for safety; 75 locked; 129 usage.`,
		Flags: program.WithRepositoryLockFlag(program.WithJSONFlag(append([]cli.Flag{
			&cli.StringFlag{Name: "outputs", Usage: "network access to add: `POLICY`"},
			&cli.GenericFlag{Name: "read", Value: &argv.RepeatedFlag{}, Usage: "make `PATH` readable; may be repeated"},
			&cli.GenericFlag{Name: "write", Value: &argv.RepeatedFlag{}, Usage: "make `PATH` writable; may be repeated"},
			&cli.StringFlag{Name: "timeout", Usage: "end each command after `DURATION`; -1: never"},
			&cli.BoolFlag{Name: "reset", Usage: "take back what was allowed since the start"},
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "check and print, change nothing"},
		}, startflags.Limits()...)...)...),
		Action: t.allow,
	}
}

func (t *tool) allow(c *cli.Context) error {
	args, err := program.PositionalArgs(c, 1, 1)
	if err != nil {
		return err
	}
	limits, err := startflags.ParseLimits(c)
	if err == nil {
		err = startflags.ParseLimit(c, gitagency.TimeoutLimit, &limits.Timeout)
	}
	if err != nil {
		return err
	}
	req := gitagency.AllowRequest{
		Invocation: args[0], Reset: c.Bool("reset"), Outputs: c.String("outputs"), Read: repeatedValues(c, "read"), Write: repeatedValues(c, "write"),
		Limits: limits, DryRun: c.Bool("dry-run"),
	}
	if c.IsSet("outputs") && req.Outputs == "" {
		return program.NewUsageError(c, errors.New("--outputs is empty: want open, or hosts:<list> with hosts to add"))
	}
	if !req.Reset && !allowsAnything(req) {
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
	t.reportAllowed(done, req)
	if c.Bool("json") {
		return t.PrintJSON(done)
	}
	return nil
}

// allowsAnything reports whether a request does more than reset.
func allowsAnything(req gitagency.AllowRequest) bool {
	return req.Outputs != "" || len(req.Read)+len(req.Write) > 0 || req.Limits != (gitagency.Limits{})
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
func (t *tool) reportAllowed(done gitagency.AllowResult, req gitagency.AllowRequest) {
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
	verb := "allowed"
	if req.Reset {
		verb = "reset"
	}
	what := t.PaintSuccess(verb) + " for " + done.ID
	switch {
	case !done.Changed:
		what = "nothing to change for " + done.ID
	case req.DryRun:
		what = "would be " + verb + " for " + done.ID
	case len(done.Pending) == 0:
		what += ", from the next command on"
	}
	fmt.Fprintf(t.Stderr, "%s: %s\n", what, strings.Join(words, ", "))
	if done.Outputs == "open" && strings.HasPrefix(req.Outputs, "hosts:") {
		t.PrintHint("its outputs are open: it can reach all hosts, and allow only widens; for a sandbox that reaches these alone, start another: git agency start --outputs " + quote.Shell(req.Outputs))
	}
	for _, path := range done.Pending {
		t.Warn(fmt.Sprintf("the change of %s is in force only when the commands have ended that run in sandbox %s now: they and commands that join them keep their walls, and commands that cannot join are refused", quote.Path(path), done.ID))
	}
}
