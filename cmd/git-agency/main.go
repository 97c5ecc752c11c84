// Command git-agency implements "git agency", which runs many coding agents on one repository without losing work.
//
// This package parses the command line into requests and prints results. Everything else is in package gitagency, except
// for the process of the pager, which internal/term runs. Each command has a file named after it. tool, args, usage, exit,
// hints and complete serve all commands; output prints for scripts, table, format, color and pager print for people, and
// style decides how by looking at the terminal and git's configuration.
//
// Output follows four rules. Results go to standard output, everything else to standard error. Errors read like git's:
// "fatal: …" or "error: …", in lower case and without a full stop, then "hint: …" lines with the command to type.
// --json and --porcelain are stable and never coloured or cut, and paged only if the user pages everything; schema/
// describes the JSON. Exit codes are in exit.go, all of them.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/urfave/cli/v2"

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
	// reads the output of git.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	os.Exit(mainWithOptions(os.Args, gitagency.Options{}))
}

// mainWithOptions is main with options that only a test binary sets.
func mainWithOptions(args []string, opts gitagency.Options) int {
	ctx, secondSignal, stop := cancelOnSignal(context.Background())
	defer stop()
	t := newTool(os.Stdout, os.Stderr, opts)
	t.secondInterrupt = secondSignal
	return t.runCommandLine(ctx, args)
}

// cancelOnSignal cancels the context on the first SIGHUP, SIGINT, SIGTERM or SIGQUIT, with the signal as cause, and
// closes secondSignal on the second. The second signal does not cut a rollback short, since the work is worth more than a
// second; only code that waits for a program of the user heeds it. A SIGHUP that is ignored at start, as under nohup,
// stays ignored. SIGINT does not, because shells start background jobs with SIGINT ignored.
func cancelOnSignal(parent context.Context) (ctx context.Context, secondSignal <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals, second := make(chan os.Signal, 1), make(chan struct{})
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	go func() {
		if sig, ok := (<-signals).(syscall.Signal); ok {
			cancel(interruptedError{sig})
		}
		<-signals
		close(second)
	}()
	// stop does not restore the default handlers: a signal after the work is done must not look like a failure.
	return ctx, second, func() { cancel(nil) }
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
