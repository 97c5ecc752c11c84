package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency"
)

// Progress is shown for operations that take longer than progressDelay.
const (
	progressDelay    = 300 * time.Millisecond
	progressInterval = 100 * time.Millisecond
)

// startUploadProgress shows the progress of an upload on a terminal. report is nil if standard error is no terminal;
// end erases the line.
func (t *tool) startUploadProgress(what string) (report func(gitagency.UploadProgress), end func()) {
	return startProgress(t, what, uploadProgressText)
}

// startProgress is startUploadProgress for any progress value that words can format.
func startProgress[T any](t *tool, what string, words func(T) string) (report func(T), end func()) {
	if !isTerminal(t.rawStderr) {
		return nil, func() {}
	}
	next, shown := t.progressClock().Add(progressDelay), 0
	report = func(p T) {
		now := t.progressClock()
		if now.Before(next) {
			return
		}
		next = now.Add(progressInterval)
		shown, _ = fmt.Fprintf(t.rawStderr, "\r%s: %s", what, words(p))
	}
	return report, func() {
		if shown > 0 {
			fmt.Fprintf(t.rawStderr, "\r%s\r", strings.Repeat(" ", shown-1))
		}
	}
}

// uploadProgressText formats the progress of an upload. With few files it adds the size, because each of them may be
// large.
func uploadProgressText(p gitagency.UploadProgress) string {
	const few = 100
	text := fmt.Sprintf("%d/%d", p.Files, p.Total)
	if p.Total < few && p.Bytes >= 1<<20 {
		text += fmt.Sprintf(", %d MiB", p.Bytes>>20)
	}
	return text
}
