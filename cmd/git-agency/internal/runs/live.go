package runs

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
)

// live shows one line for each agent at work on a terminal, with what it did last. Elsewhere it shows nothing.
type live struct {
	w     io.Writer // terminal; nil if there is none
	now   func() time.Time
	width int
	began time.Time

	mu    sync.Mutex
	lines []liveLine
	shown int  // number of lines on the terminal
	bell  bool // whether the bell is rung when the lines are drawn next
	stop  chan struct{}
	done  chan struct{}
}

type liveLine struct {
	id, name string
	last     string    // what it did last, or how it ended
	ended    time.Time // zero while it runs
}

// newLive starts the display.
func (t Commands) newLive(invocations []gitagency.Invocation) *live {
	l := &live{now: t.Now, stop: make(chan struct{}), done: make(chan struct{})}
	for _, inv := range invocations {
		l.lines = append(l.lines, liveLine{id: inv.ID, name: inv.Runner, last: "works"})
	}
	if !term.IsTerminal(t.RawStderr) {
		close(l.done)
		return l
	}
	l.w, l.width, l.began = t.RawStderr, term.Width(t.RawStderr), l.now()
	go l.refresh()
	return l
}

// reporter returns the function that gets the events of a run.
func (l *live) reporter(id string) func(gitagency.RunEvent) {
	return func(e gitagency.RunEvent) {
		if text := describeEvent(e); text != "" {
			l.set(id, text, time.Time{})
		}
		if e.Kind == "conflict" {
			l.ring()
		}
	}
}

// questionReporter returns the function that gets the questions for whose answers the agent of a run waits.
func (t Commands) questionReporter(l *live, id string) func(question string, options []string) {
	return func(question string, options []string) {
		if l.w != nil {
			l.set(id, "asks: "+question, time.Time{})
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		t.printQuestion(id, question, options)
	}
}

// ended shows how a run ended. After an interrupt, an error means that it may go on on another machine, which was told to end it.
func (l *live) ended(id string, res gitagency.RunResult, err error, isInterrupted bool) {
	switch {
	case err != nil && isInterrupted:
		l.set(id, "told to end", l.now())
	case err != nil:
		l.set(id, gitagency.StatusFailed, l.now())
	default:
		l.set(id, res.Status, l.now())
	}
}

// ring has the bell of the terminal rung with the next lines, since the user may not watch them.
func (l *live) ring() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bell = true
}

func (l *live) set(id, text string, ended time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.lines {
		if l.lines[i].id == id {
			l.lines[i].last, l.lines[i].ended = text, ended
		}
	}
}

// refresh draws the lines until end is called.
func (l *live) refresh() {
	defer close(l.done)
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-ticker.C:
			l.draw()
		}
	}
}

func (l *live) draw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	l.erase(&b)
	for _, line := range l.lines {
		until := line.ended
		if until.IsZero() {
			until = l.now()
		}
		text := fmt.Sprintf("%s %s %s: %s", gitagency.ShortID(line.id), line.name, format.ShortDuration(until.Sub(l.began)), term.OneLine(line.last))
		b.WriteString(term.Cut(text, max(l.width-1, 20)) + "\n")
	}
	if l.bell {
		b.WriteByte('\a')
	}
	l.shown, l.bell = len(l.lines), false
	_, _ = io.WriteString(l.w, b.String()) // a display that cannot be drawn is no reason to fail
}

// erase moves to the first line that is shown, and erases all below.
func (l *live) erase(b *strings.Builder) {
	if l.shown > 0 {
		fmt.Fprintf(b, "\x1b[%dA\r\x1b[J", l.shown)
	}
	l.shown = 0
}

// end removes the line of a single agent from the terminal; those of several stay, with how each ended.
func (l *live) end() {
	if l.w == nil {
		return
	}
	close(l.stop)
	<-l.done
	b := &strings.Builder{}
	if len(l.lines) > 1 {
		l.draw()
	} else {
		l.erase(b)
	}
	b.WriteByte('\a') // the user may look elsewhere
	_, _ = io.WriteString(l.w, b.String())
	l.w = nil
}

// describeEvent says in one line what an agent did; empty for an event that users need not see.
func describeEvent(e gitagency.RunEvent) string {
	switch e.Kind {
	case "message":
		return e.Text
	case "tool":
		return strings.TrimSpace(e.Tool + " " + e.Text)
	case "tool-error":
		return "failed: " + strings.TrimSpace(e.Tool+" "+e.Text)
	case "denied":
		return "not permitted: " + strings.TrimSpace(e.Tool+" "+e.Text)
	case "error":
		return "error: " + e.Text
	case "conflict":
		return "conflicts " + e.Text
	}
	return ""
}
