package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency"
)

// Progress is for people, and only when they would begin to wonder.
const (
	progressAfter = 300 * time.Millisecond
	progressEvery = 100 * time.Millisecond
)

// progress shows how far something is, on a terminal. The report is nil where nobody would see it; end wipes
// away what was shown.
func (t *tool) progress(what string) (report func(gitagency.UploadProgress), end func()) {
	return progressOf(t, what, howFar)
}

// progressOf is progress of anything that can be put into words.
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

// howFar words a progress. Of few files each may be large, so that their number says little.
func howFar(p gitagency.UploadProgress) string {
	const few = 100
	text := fmt.Sprintf("%d/%d", p.Files, p.Total)
	if p.Total < few && p.Bytes >= 1<<20 {
		text += fmt.Sprintf(", %d MiB", p.Bytes>>20)
	}
	return text
}
