// Command git-agency implements "git agency", which runs many coding agents on one repository without losing work.
//
// This package holds the commands, and internal/runs, landing, worktrees and inside hold groups of them. Each has a file
// named after it: its flags, the request that it passes to package gitagency, and the output. exit maps the errors of all
// commands to exit codes and hints. Code that knows no command is in internal/, too: program runs the command line, opens
// the repository and prints results and errors, with the help of argv, background, complete, format, hints and term;
// interrupt, manual, mcp, setup, sources and startflags serve some commands.
//
// Output follows four rules. Results go to standard output, everything else to standard error. Errors read like git's:
// "fatal: …" or "error: …", in lower case and without a full stop, then "hint: …" lines with the command to type.
// --json and --porcelain are stable and never coloured or cut, and paged only if the user pages everything; schema/
// describes the JSON. Exit codes are in internal/hints.
package main

import (
	"context"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/inside"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/interrupt"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/landing"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/runs"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/worktrees"
	"github.com/git-agency/git-agency/gitagency"
)

// tool is one run of git-agency. Its methods are the commands, and what several commands share.
type tool struct{ *program.Program }

func newTool(stdout, stderr io.Writer, opts gitagency.Options) *tool {
	t := &tool{}
	t.Program = program.New(stdout, stderr, opts, program.Config{
		Version:       toolVersion(),
		Commands:      t.commands,
		Inside:        t.insideActions,
		Paged:         pagedCommands,
		Sections:      manualSections,
		KeepsDashDash: keepsDashDashArgs,
		ExitCode:      exitCode,
		Hints:         hintsFor,
	})
	return t
}

// commands returns all commands, in the order in which help and the manual list them.
func (t *tool) commands() []program.CommandGroup {
	run, land, forAgents := runs.Commands{Program: t.Program}, landing.Commands{Program: t.Program}, inside.Commands{Program: t.Program}
	return []program.CommandGroup{
		{Task: "begin", Commands: []*cli.Command{
			worktrees.Commands{Program: t.Program}.Worktree(),
			t.startCommand(),
		}},
		{Task: "run agents", Commands: []*cli.Command{
			run.Run(),
			run.Preflight(),
			run.Attach(),
			run.Logs(),
			run.Wait(),
			run.Stop(),
			run.Questions(),
			run.Resume(),
			run.Events(),
			run.Supervise(),
			run.Node(),
		}},
		{Task: "see what there is", Commands: []*cli.Command{
			t.lsCommand(),
			t.showCommand(),
			run.Log(),
			t.pathCommand(),
		}},
		{Task: "work in a sandbox", Commands: []*cli.Command{
			t.execCommand(),
			t.shellCommand(),
			t.portsCommand(),
			t.denialsCommand(),
			t.allowCommand(),
			t.putCommand(),
			t.snapshotCommand(),
			t.diffCommand(),
			forAgents.Ask(),
			forAgents.MCP(),
		}},
		{Task: "review and land", Commands: []*cli.Command{
			run.Review(runs.ReviewActions{Diff: t.printDiff, Land: land.LandInvocations, Discard: t.discard}),
			t.radarCommand(),
			land.Submit(),
			land.Reject(),
			land.Sync(),
			land.Land(),
			land.Unland(),
		}},
		{Task: "end, and bring back", Commands: []*cli.Command{
			t.discardCommand(),
			t.restoreCommand(),
		}},
		{Task: "repair and clean up", Commands: []*cli.Command{
			t.doctorCommand(),
			t.pruneCommand(),
		}},
		{Task: "configure and read about it", Commands: []*cli.Command{
			t.configCommand(),
			t.setupCommand(),
			t.completionCommand(),
			t.helpCommand(),
			t.versionCommand(),
		}},
	}
}

// pagedCommands are the commands with long output for people. It is paged on a terminal unless pager.agency says
// otherwise; that key can also page the output of all commands, as it does for git itself.
var pagedCommands = []string{"ls", "worktree ls", "diff", "radar", "denials", "snapshot ls", "log", "doctor", "config", "help"}

func main() {
	// Collect garbage rarely: most commands end before a collection would save anything.
	debug.SetGCPercent(800)
	// Run one more P than there are processors, so that worktree scans on all of them do not starve the goroutine that
	// reads the output of git. exec scans no worktree, and starts faster with fewer threads.
	if len(os.Args) < 2 || os.Args[1] != "exec" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
	os.Exit(mainWithOptions(os.Args, gitagency.Options{}))
}

// mainWithOptions is main with options that only a test binary sets.
func mainWithOptions(args []string, opts gitagency.Options) int {
	ctx, secondSignal, stop := interrupt.OnSignal(context.Background(), func(s syscall.Signal) error { return program.InterruptedError{Signal: s} })
	defer stop()
	t := newTool(os.Stdout, os.Stderr, opts)
	t.SecondInterrupt = secondSignal
	return t.RunCommandLine(ctx, args)
}

// version is set by the linker. Without it, as after "go install", the build info has the version.
var version = ""

func toolVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
