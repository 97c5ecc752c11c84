// Command git-agency is "git agency": many coding agents, one repository, nothing lost.
//
// This package turns words into requests and results into text; everything it can do is in package
// gitagency. Every command has a file of its own name; tool, args, complete, usage and exit serve them all,
// and so do those that print: output for scripts, table, format, color and pager for people, look for
// what they have to know of the terminal.
//
// What it prints follows four rules. Results go to standard output, everything else to standard
// error. Errors read like git's: "fatal: …" or "error: …", in lower case and without a full stop,
// then "hint: …" lines that say what to type. --json and --porcelain are stable and never coloured,
// cut or, unless the user pages everything, paged; schema/ describes the JSON.
// Exit codes are in exit.go, all of them.
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

// commands is the command line, in the order in which help shows it.
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
	// Most commands are over before collecting garbage has saved anything.
	debug.SetGCPercent(800)
	// While every processor looks at files, somebody has to hear what a git that was asked has to say.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	os.Exit(run(os.Args, gitagency.Options{}))
}

// run is main with the options that only a test binary fills.
func run(args []string, opts gitagency.Options) int {
	ctx, again, stop := interruptible(context.Background())
	defer stop()
	t := newTool(os.Stdout, os.Stderr, opts)
	t.hurry = again
	return t.run(ctx, args)
}

// interruptible ends the context on the first signal that asks us to go, with the signal as cause, and
// closes again on the next. What is being rolled back then is worth more than a second; only who waits for
// somebody else's program heeds it. A hang-up that we were told to ignore, as by nohup, stays ignored; an
// interrupt does not, because shells let everything in the background ignore that.
func interruptible(parent context.Context) (ctx context.Context, again <-chan struct{}, stop func()) {
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
	// Signals stay ours to the end: one that comes when all is done must not look like a failure.
	return ctx, second, func() { cancel(nil) }
}

// version is set by the linker; a binary made by "go install" knows its own.
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
