package term

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Progress is shown for operations that take longer than progressDelay.
const (
	progressDelay    = 300 * time.Millisecond
	progressInterval = 100 * time.Millisecond
)

// StartProgress shows the progress of an operation on w, if that is a terminal; else report is nil. format formats a
// progress value, end erases the line; more calls of it do nothing.
func StartProgress[T any](w io.Writer, clock func() time.Time, what string, format func(T) string) (report func(T), end func()) {
	if !IsTerminal(w) {
		return nil, func() {}
	}
	next, shown := clock().Add(progressDelay), 0
	report = func(p T) {
		now := clock()
		if now.Before(next) {
			return
		}
		next = now.Add(progressInterval)
		shown, _ = fmt.Fprintf(w, "\r%s: %s", what, format(p))
	}
	return report, func() {
		if shown > 0 {
			fmt.Fprintf(w, "\r%s\r", strings.Repeat(" ", shown-1))
		}
		shown = 0
	}
}
