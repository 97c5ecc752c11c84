package runs

import (
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// Commits of the second in which a run began come after its begin and before its end; a date before the start of the
// sandbox counts as that, and commits with the same place stay in the order of their history.
func TestLogPlacesCommits(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 28, 12, 0, 0, 0, time.UTC)
	after := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	entry := func(name string, seconds, runs int) historyEntry {
		return historyEntry{LogEntry: LogEntry{Time: after(seconds), Event: name}, begins: runs > 0, runs: runs}
	}
	entries := insertInputs([]historyEntry{
		entry("running", 0, 1), entry("exec", 0, 0), entry("finished", 3, 0), entry("running", 3, 2), entry("failed", 9, 0),
	}, "id", []inputEvent{
		{Time: start, Event: taskEvent, Runs: 1},
		{Time: after(3), Event: answerEvent, Runs: 2},
		{Time: after(9), Event: taskEvent, Runs: 3},
	})
	commit := func(subject string, seconds int) git.ListedCommit {
		return git.ListedCommit{ID: subject, Time: after(seconds), Subject: subject}
	}
	merged := insertCommits(entries, core.Invocation{ID: "id", StartedAt: start}, []git.ListedCommit{
		commit("old", -1000), commit("first", 0), commit("second", 2), {ID: "undated", Subject: "undated"}, commit("third", 5), commit("future", 1000),
	})
	var names []string
	for _, e := range merged {
		name := e.Event
		if name == commitEventName {
			_, subject, _ := strings.Cut(string(e.JSON), `"subject":"`)
			name = strings.TrimSuffix(subject, `"}`)
		}
		names = append(names, name)
	}
	want := "task running old first undated exec second finished answer running third failed task future"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Answers that an agent was given while it runs are in the places of their events, also of the same second.
func TestLogPlacesAnswersDuringRun(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 28, 12, 0, 0, 0, time.UTC)
	given := historyEntry{LogEntry: LogEntry{Time: now, Event: answerEvent}, given: true}
	plain := func(name string) historyEntry { return historyEntry{LogEntry: LogEntry{Time: now, Event: name}} }
	answer := func(text string) inputEvent {
		return inputEvent{Time: now, Event: answerEvent, Runs: 1, Text: text, WhileRunning: true}
	}
	entries := insertInputs([]historyEntry{plain("question"), given, plain("question"), given, plain("finished")}, "id", []inputEvent{answer("one"), answer("two"), answer("lost event")})
	var got []string
	for _, e := range entries {
		_, text, _ := strings.Cut(string(e.JSON), `"text":"`)
		text, _, _ = strings.Cut(text, `"`)
		got = append(got, strings.TrimSpace(e.Event+" "+text))
	}
	if want := "question, answer one, question, answer two, finished, answer lost event"; strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
}
