// Package interrupt ends a context when a signal arrives or when the git process that started this program exits. It
// must never end the process itself: an interrupted command undoes its work first.
package interrupt

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// OnSignal cancels the context on the first SIGHUP, SIGINT, SIGTERM or SIGQUIT, with the cause for that signal, and
// closes secondSignal on the second. The second signal does not cut a rollback short, since the work is worth more than a
// second; only code that waits for a program of the user heeds it. A SIGHUP that is ignored at start, as under nohup,
// stays ignored. SIGINT does not, because shells start background jobs with SIGINT ignored.
func OnSignal(parent context.Context, cause func(syscall.Signal) error) (ctx context.Context, secondSignal <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals, second := make(chan os.Signal, 1), make(chan struct{})
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	go func() {
		if sig, ok := (<-signals).(syscall.Signal); ok {
			cancel(cause(sig))
		}
		<-signals
		close(second)
	}()
	// stop does not restore the default handlers: a signal after the work is done must not look like a failure.
	return ctx, second, func() { cancel(nil) }
}
