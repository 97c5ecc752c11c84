// Command git-agency implements "git agency", which runs many coding agents on one repository without losing work.
//
// This package parses the command line into requests, calls package gitagency and prints results. Each command has a file
// named after it. tool, usage and exit serve all commands; output prints results, style and pager decide how they
// are shown by looking at the terminal and git's configuration. Code that knows no command is in internal/: argv,
// background, complete, format, hints, interrupt, manual, setup, sources and term.
//
// Output follows four rules. Results go to standard output, everything else to standard error. Errors read like git's:
// "fatal: …" or "error: …", in lower case and without a full stop, then "hint: …" lines with the command to type.
// --json and --porcelain are stable and never coloured or cut, and paged only if the user pages everything; schema/
// describes the JSON. Exit codes are in internal/hints.
package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/interrupt"
	"github.com/git-agency/git-agency/gitagency"
)

// commands returns all commands, in the order in which help lists them.
func (t *tool) commands() []*cli.Command {
	return []*cli.Command{
		t.worktreeCommand(),
		t.startCommand(),
		t.lsCommand(),
		t.showCommand(),
		t.pathCommand(),
		t.execCommand(),
		t.portsCommand(),
		t.denialsCommand(),
		t.putCommand(),
		t.snapshotCommand(),
		t.diffCommand(),
		t.radarCommand(),
		t.submitCommand(),
		t.rejectCommand(),
		t.syncCommand(),
		t.landCommand(),
		t.unlandCommand(),
		t.discardCommand(),
		t.restoreCommand(),
		t.doctorCommand(),
		t.pruneCommand(),
		t.configCommand(),
		t.setupCommand(),
		t.completionCommand(),
		t.helpCommand(),
		t.versionCommand(),
	}
}

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
	ctx, secondSignal, stop := interrupt.OnSignal(context.Background(), func(s syscall.Signal) error { return interruptedError{s} })
	defer stop()
	t := newTool(os.Stdout, os.Stderr, opts)
	t.secondInterrupt = secondSignal
	return t.runCommandLine(ctx, args)
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
