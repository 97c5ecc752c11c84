package main

import (
	"fmt"
	"strings"
	"time"
)

// Progress is for people, and only when they would begin to wonder.
const (
	progressAfter = 300 * time.Millisecond
	progressEvery = 100 * time.Millisecond
)

// progress shows how far something is, on a terminal. The report is nil where nobody would see it; end wipes
// away what was shown.
func (t *tool) progress(what string) (report func(done, total int), end func()) {
	if !isTerminal(t.messages) {
		return nil, func() {}
	}
	next, shown := time.Now().Add(progressAfter), 0
	report = func(done, total int) {
		now := time.Now()
		if now.Before(next) {
			return
		}
		next = now.Add(progressEvery)
		shown, _ = fmt.Fprintf(t.messages, "\r%s: %d/%d", what, done, total)
	}
	return report, func() {
		if shown > 0 {
			fmt.Fprintf(t.messages, "\r%s\r", strings.Repeat(" ", shown-1))
		}
	}
}
