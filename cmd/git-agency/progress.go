package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency"
)

// Progress is shown for operations that take longer than progressDelay.
const (
	progressAfter = 300 * time.Millisecond
	progressEvery = 100 * time.Millisecond
)

// startUploadProgress shows the progress of an upload on a terminal. report is nil if standard error is no terminal;
// end erases the line.
func (t *tool) progress(what string) (report func(gitagency.UploadProgress), end func()) {
	return progressOf(t, what, howFar)
}

// startProgress is startUploadProgress for any progress value that words can format.
func progressOf[T any](t *tool, what string, words func(T) string) (report func(T), end func()) {
	if !isTerminal(t.messages) {
		return nil, func() {}
	}
	next, shown := t.clock().Add(progressAfter), 0
	report = func(p T) {
		now := t.clock()
		if now.Before(next) {
			return
		}
		next = now.Add(progressEvery)
		shown, _ = fmt.Fprintf(t.messages, "\r%s: %s", what, words(p))
	}
	return report, func() {
		if shown > 0 {
			fmt.Fprintf(t.messages, "\r%s\r", strings.Repeat(" ", shown-1))
		}
	}
}

// uploadProgressText formats the progress of an upload. With few files it adds the size, because each of them may be
// large.
func howFar(p gitagency.UploadProgress) string {
	const few = 100
	text := fmt.Sprintf("%d/%d", p.Files, p.Total)
	if p.Total < few && p.Bytes >= 1<<20 {
		text += fmt.Sprintf(", %d MiB", p.Bytes>>20)
	}
	return text
}
