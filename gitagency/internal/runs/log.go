package runs

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// LogEntry is one event in the history of an invocation.
type LogEntry struct {
	Time  time.Time
	Event string
	JSON  []byte // object with at least time, invocation_id and event; texts of agents in it are untrusted
}

// maxLoggedCommits bounds the commits of a log: an agent can make any number of them.
const maxLoggedCommits = 1000

// Log returns the history of an invocation in the order of time: its start, the tasks and answers that its agent was given,
// its recorded events, and the commits of its branch. What the stream of the agent told is left out. For a broken
// invocation it returns what is there, with an error.
func Log(ctx context.Context, r *core.Repository, query string) ([]LogEntry, error) {
	inv, err := r.Invocation(query)
	if err != nil {
		return nil, err
	}
	entries, err := readHistory(r, inv)
	if err != nil {
		return nil, err
	}
	logged, err := readInputs(r, inv.ID)
	if err != nil {
		return nil, err
	}
	commits, err := sandboxCommits(ctx, r, inv)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		r.Warn("the commits of %s cannot be listed: %v", inv.ID, err)
	}
	entries = insertInputs(entries, inv.ID, withFirstTask(r, inv, logged))
	entries = insertCommits(entries, inv, commits)
	log := []LogEntry{newLogEntry(inv.ID, inv.StartedAt, startEvent{
		Time: inv.StartedAt, Event: startEventName, Name: inv.Name, Worktree: inv.Worktree, Base: inv.BaseCommit,
		Branch: inv.IntegrationBranch, FromSnapshot: inv.FromSnapshot, Paths: inv.Paths, Runner: inv.Runner, Mode: inv.Mode,
	})}
	for _, e := range entries {
		log = append(log, e.LogEntry)
	}
	return log, inv.Err()
}

const (
	startEventName  = "start"
	commitEventName = "commit"
)

// startEvent is the entry of a log that says how an invocation was started.
type startEvent struct {
	Time         time.Time `json:"time"`
	Event        string    `json:"event"`
	Name         string    `json:"invocation_name,omitempty"`
	Worktree     string    `json:"integration_worktree,omitempty"`
	Branch       string    `json:"integration_branch,omitempty"`
	Base         string    `json:"base_commit,omitempty"`
	FromSnapshot string    `json:"from_snapshot,omitempty"`
	Paths        []string  `json:"paths,omitempty"` // plain directories that the sandbox is over
	Runner       string    `json:"runner,omitempty"`
	Mode         string    `json:"mode,omitempty"`
}

// commitEvent is the entry of a log for a commit of the sandbox's branch. Its author chose the time, the name and the subject.
type commitEvent struct {
	Time    time.Time `json:"time"`
	Event   string    `json:"event"`
	Commit  string    `json:"commit"`
	Author  string    `json:"author"`
	Subject string    `json:"subject"`
}

// historyEntry is an entry of the log with the fields that decide about its place.
type historyEntry struct {
	LogEntry
	begins bool // it begins a run, so that commits of the same second come after it
	runs   int  // number of the run that it begins
	given  bool // it stands for an answer during a run, whose text is an input
}

// newLogEntry returns the entry of an event of this package, which has at least a time and a name.
func newLogEntry(id string, at time.Time, known any) LogEntry {
	encoded, _ := json.Marshal(known) // a struct of strings, numbers and times always can be
	e, _ := parseEvent(id, append(encoded, '\n'))
	return LogEntry{Time: at, Event: e.name, JSON: e.line}
}

// readHistory returns the recorded events of an invocation, without those of its agent's stream.
func readHistory(r *core.Repository, inv core.Invocation) ([]historyEntry, error) {
	var entries []historyEntry
	last, running := inv.StartedAt, false
	err := r.Store.ReadEvents(r.ID, inv.ID, func(line []byte) {
		e, ok := parseEvent(inv.ID, line)
		if !ok || e.name == agentEventName {
			return
		}
		if !e.time.IsZero() {
			last = e.time
		}
		var begun struct {
			Runs int `json:"runs"`
		}
		entry := historyEntry{LogEntry: LogEntry{Time: last, Event: e.name, JSON: e.line}, given: e.name == answerEvent}
		if entry.begins = e.name == store.StatusRunning; entry.begins && json.Unmarshal(e.line, &begun) == nil {
			entry.runs = begun.Runs
		}
		running = entry.begins || running && !slices.Contains(core.EndedStatuses, e.name)
		entries = append(entries, entry)
	})
	if running && !inv.IsSupervised() && inv.Status != store.StatusRunning { // no process was left to record its end
		end := statusEvent{Time: last, Event: inv.Status, Reason: inv.StatusReason}
		entries = append(entries, historyEntry{LogEntry: newLogEntry(inv.ID, last, end)})
	}
	return entries, err
}

// withFirstTask returns all texts that the user gave to the agent, the first task first.
func withFirstTask(r *core.Repository, inv core.Invocation, logged []inputEvent) []inputEvent {
	if slices.ContainsFunc(logged, inputEvent.isTask) {
		slices.SortStableFunc(logged, func(a, b inputEvent) int { return a.Runs - b.Runs })
		return logged
	}
	if first, known := firstTask(r, inv, logged); known {
		return append([]inputEvent{first}, logged...)
	}
	return logged
}

// insertInputs puts the texts of the user before the runs that got them, and answers that were given during a run in the
// place of their events.
func insertInputs(entries []historyEntry, id string, inputs []inputEvent) []historyEntry {
	for _, input := range inputs {
		if i := slices.IndexFunc(entries, func(e historyEntry) bool { return e.given && !e.Time.Before(input.Time) }); input.WhileRunning && i >= 0 {
			entries[i] = historyEntry{LogEntry: newLogEntry(id, entries[i].Time, input)}
			continue
		}
		at := slices.IndexFunc(entries, func(e historyEntry) bool { return e.begins && e.runs >= input.Runs && e.runs > 0 })
		if at < 0 {
			at = slices.IndexFunc(entries, func(e historyEntry) bool { return e.Time.After(input.Time) })
		}
		if at < 0 {
			at = len(entries)
		}
		entries = slices.Insert(entries, at, historyEntry{LogEntry: newLogEntry(id, input.Time, input), begins: true})
	}
	return entries
}

// insertCommits puts commits where their dates say. These have whole seconds: of one second, a commit comes after the
// begin of a run and before everything else. A date before the start of the sandbox counts as that.
func insertCommits(entries []historyEntry, inv core.Invocation, commits []git.ListedCommit) []historyEntry {
	before := make([][]historyEntry, len(entries)+1) // commits by the index of the entry after them
	for _, c := range commits {
		second := c.Time
		if second.Before(inv.StartedAt) {
			second = inv.StartedAt
		}
		at := slices.IndexFunc(entries, func(e historyEntry) bool {
			at := e.Time.Truncate(time.Second)
			return at.After(second) || at.Equal(second) && !e.begins
		})
		if at < 0 {
			at = len(entries)
		}
		event := commitEvent{
			Time: c.Time, Event: commitEventName, Commit: c.ID, Author: quote.Shorten(c.Author, maxEventText), Subject: quote.Shorten(c.Subject, maxEventText),
		}
		before[at] = append(before[at], historyEntry{LogEntry: newLogEntry(inv.ID, c.Time, event)})
	}
	var merged []historyEntry
	for i, commits := range before {
		merged = append(merged, commits...)
		if i < len(entries) {
			merged = append(merged, entries[i])
		}
	}
	return merged
}

// sandboxCommits lists the commits that were made in a sandbox, also in one that has ended. It imports no git state from
// behind walls: a command's commits count when it has ended.
func sandboxCommits(ctx context.Context, r *core.Repository, inv core.Invocation) ([]git.ListedCommit, error) {
	without := []string{inv.BaseCommit, inv.SyncedCommit, inv.LandedBefore}
	if inv.LandedCommit == "" { // else the integration branch may have the commits themselves
		if upstream, err := r.IntegrationCommit(ctx, inv); err == nil { // a branch that is gone has no commits
			without = append(without, upstream)
		}
	}
	tip, err := sandboxTip(ctx, r, inv)
	if err != nil {
		return nil, err
	}
	return r.Git.ListCommits(ctx, []string{tip}, without, maxLoggedCommits)
}

// sandboxTip returns the last commit of a sandbox; empty if it is not kept.
func sandboxTip(ctx context.Context, r *core.Repository, inv core.Invocation) (string, error) {
	if inv.LandedTip != "" {
		return inv.LandedTip, nil
	}
	if !inv.HasEnded() {
		return r.Git.Tip(ctx, core.SandboxRef(inv.ID))
	}
	kept, err := r.Git.Tip(ctx, core.TrashRef(inv.ID))
	if err != nil || kept == "" {
		return "", err
	}
	captured, err := core.ReadCapture(ctx, r.Git, kept)
	if err != nil {
		return "", err
	}
	if captured.IsCaptureOf(inv.ID) { // its first parent is the HEAD of the sandbox
		return captured.Parents[0], nil
	}
	return kept, nil
}
