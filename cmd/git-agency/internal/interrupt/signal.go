// Package interrupt ends a context when a signal arrives or when the git process that started this program exits. It
// must never end the process itself: an interrupted command undoes its work first.
package interrupt

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// repeatWindow is the time within which the same signal is taken for a copy of the first. Of one Ctrl-C, "git agency"
// gets two: that of the terminal, and one that git forwards.
const repeatWindow = 250 * time.Millisecond

// OnSignal cancels the context on the first SIGHUP, SIGINT, SIGTERM or SIGQUIT, with the cause for that signal, and
// closes secondSignal on the second, unless that is a copy of the first. The second signal does not cut a rollback short,
// since the work is worth more than a second; only code that waits for a program of the user heeds it. A SIGHUP that is
// ignored at start, as under nohup, stays ignored. SIGINT does not, because shells start background jobs with SIGINT
// ignored.
func OnSignal(parent context.Context, cause func(syscall.Signal) error) (ctx context.Context, secondSignal <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals, second := make(chan os.Signal, 2), make(chan struct{})
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	go awaitSignals(signals, func(s syscall.Signal) { ignoreOutputStops(); cancel(cause(s)) }, func() { close(second) })
	// stop does not restore the default handlers: a signal after the work is done must not look like a failure.
	return ctx, second, func() { cancel(nil) }
}

// ignoreOutputStops lets a process that was told to end write its last messages: in the background of a terminal with
// tostop, as after "kill %1" of a stopped job, they would stop it again.
func ignoreOutputStops() { signal.Ignore(syscall.SIGTTOU) }

// awaitSignals calls onFirst for the first signal and onSecond for the next that is not a copy of it.
func awaitSignals(signals <-chan os.Signal, onFirst func(syscall.Signal), onSecond func()) {
	first, ok := (<-signals).(syscall.Signal)
	if !ok {
		return
	}
	at := time.Now()
	onFirst(first)
	for next := range signals {
		if next != first || time.Since(at) >= repeatWindow {
			onSecond()
			return
		}
	}
}

// KeepOnBrokenPipe makes writes to a closed pipe fail instead of ending this program: what it supervises is worth more than
// its output. Programs that it starts are not affected.
func KeepOnBrokenPipe() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
