package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Log builds the command that tells the history of an invocation.
func (t Commands) Log() *cli.Command {
	return &cli.Command{
		Name:      "log",
		Usage:     "show the history of one invocation",
		UsageText: "git agency log [<id>] [--json]",
		Description: `Shows what happened to <id>, in the order of time: from what it was started, the tasks and answers that its
agent was given, its runs and how they ended, commands, commits of its branch, snapshots, questions, and its
review, landing or end. It works for landed and discarded invocations as long as they are not pruned.

Texts are shown up to 32 KiB, and at most 1,000 commits. Commits have the date that their author chose. What
an agent wrote is in 'git agency logs'. Events of other versions of git-agency are shown by their names.

Exit status: 0; 3 no such invocation; 4 shown as far as known, but it is broken; 129 usage.`,
		Flags: program.WithJSONFlag(),
		Action: func(c *cli.Context) error {
			repo, query, err := t.OpenForOptionalQuery(c)
			if err != nil {
				return err
			}
			entries, err := repo.Log(c.Context, query)
			if err != nil && !hints.Is[*gitagency.BrokenError](err) {
				return err
			}
			if c.Bool("json") {
				return errors.Join(err, t.PrintJSON(entries))
			}
			return errors.Join(err, t.printLog(entries))
		},
	}
}

// printLog prints the history of an invocation for people.
func (t Commands) printLog(entries []gitagency.LogEntry) error {
	rows, onPaths := [][]string{}, false
	for i, e := range entries {
		if e.Event == "exec" && i+1 < len(entries) && entries[i+1].Event == "setup" { // the same command
			continue
		}
		var f logFields
		_ = json.Unmarshal(e.JSON, &f)                                            // a field of another type, in another version, stays empty
		if onPaths = onPaths || e.Event == "start" && len(f.Paths) > 0; onPaths { // its trash commit has none of the files
			f.TrashRef = ""
		}
		if e.Event == "keep" && f.TrashRef == "" {
			continue
		}
		name, lines := describeEntry(e, f)
		row := []string{"", name, ""}
		if !e.Time.IsZero() { // a commit may have no date
			row[0] = term.Ago(t.Now(), e.Time)
		}
		rows = append(rows, row)
		for i, line := range lines {
			if i > 0 {
				rows = append(rows, []string{"", "", ""})
			}
			rows[len(rows)-1][2] = line
		}
	}
	for i, row := range rows { // no spaces before an empty cell at the end
		for len(row) > 1 && row[len(row)-1] == "" {
			row = row[:len(row)-1]
		}
		rows[i] = row
	}
	return t.PrintRows([]string{"time", "state", "text"}, rows)
}

// Bounds of a text in the log for people. Most texts are those of agents.
const (
	maxLogWord = 100
	maxLogLine = 500
	maxLogText = 4 << 10
)

// logFields are the fields of all events that the log shows. Events of other versions may lack them.
type logFields struct {
	Text         string   `json:"text"`
	Worktree     string   `json:"integration_worktree"`
	Upstream     string   `json:"integration_branch"`
	Base         string   `json:"base_commit"`
	FromSnapshot string   `json:"from_snapshot"`
	Runner       string   `json:"runner"`
	Runs         int      `json:"runs"`
	Reason       string   `json:"reason"`
	Warnings     []string `json:"warnings"`
	Question     string   `json:"question"`
	Options      []string `json:"question_options"`
	Argv         []string `json:"argv"`
	Command      string   `json:"command"`
	ExitCode     int      `json:"exit_code"`
	Signal       string   `json:"signal"`
	TimedOut     bool     `json:"timed_out"`
	Duration     int64    `json:"duration_ms"`
	Commit       string   `json:"commit"`
	Subject      string   `json:"subject"`
	Ref          string   `json:"ref"`
	Note         string   `json:"note"`
	Branch       string   `json:"branch"`
	Strategy     string   `json:"strategy"`
	Remote       string   `json:"remote"`
	Merged       string   `json:"integration_commit"`
	TrashRef     string   `json:"trash_ref"`
	Files        int      `json:"files"`
	Outputs      string   `json:"outputs"`
	Read         []string `json:"read"`
	Write        []string `json:"write"`
	Target       string   `json:"target"`
	Count        int      `json:"count"`
	With         string   `json:"with"`
	Message      string   `json:"message"`
	Paths        []string `json:"paths"`
}

// describeEntry returns the name of an event for people, and the lines that say more about it.
func describeEntry(e gitagency.LogEntry, f logFields) (name string, lines []string) {
	short := format.ShortOID
	switch e.Event {
	case "start":
		return "started", []string{f.origin()}
	case "task", "answer":
		return e.Event, textLines(f.Text, len(f.Text))
	case gitagency.StatusRunning:
		if f.Runs == 0 { // on a task besides that of the invocation
			return e.Event, []string{f.Runner}
		}
		return e.Event, []string{strings.TrimSpace(fmt.Sprintf("run %d %s", f.Runs, f.Runner))}
	case gitagency.StatusFinished, gitagency.StatusFailed, gitagency.StatusBlocked, gitagency.StatusStopped, gitagency.StatusTimedOut:
		return strings.ReplaceAll(e.Event, "_", " "), f.end()
	case "question":
		return e.Event, textLines(f.Question, maxLogText)
	case "exec":
		return "command", []string{f.outcome() + commandLine(f.Argv) + f.duration()}
	case "setup":
		return "set up", []string{f.outcome() + quote.Shorten(f.Command, maxLogLine) + f.duration()}
	case "signing-off":
		return "unsigned", []string{"commits made there are not signed, since the keys are hidden"}
	case "verify":
		name := "verified"
		if f.outcome() != "" {
			name = "unverified"
		}
		return name, []string{f.outcome() + quote.Shorten(f.Command, maxLogLine) + f.duration()}
	case "commit":
		return e.Event, []string{short(f.Commit) + " " + quote.Shorten(f.Subject, maxLogLine)}
	case "snapshot":
		return e.Event, []string{snapshotName(f.Ref)}
	case "rollback":
		return "rolled back", []string{"to " + snapshotName(f.Ref)}
	case "submit":
		return "submitted", append([]string{short(f.Commit)}, textLines(f.Note, maxLogText)...)
	case "reject":
		return "rejected", textLines(f.Reason, maxLogText)
	case "sync":
		return "synced", []string{"with " + short(f.Merged)}
	case "resolve":
		if f.Reason != "" {
			return "unresolved", textLines(f.Reason, maxLogText)
		}
		return "resolved", []string{"conflicts, by " + quote.Shorten(f.Runner, maxLogWord)}
	case "warning":
		return e.Event, textLines(f.Message, maxLogText)
	case "conflict":
		return e.Event, []string{f.conflict()}
	case "conflict-ended":
		return "no conflict", []string{"with " + quote.Shorten(f.With, maxLogWord)}
	case "land":
		if f.Branch == "" { // in plain directories
			return "landed", []string{format.Count(f.Files, "file", "files")}
		}
		return "landed", []string{fmt.Sprintf("on %s as %s", quote.Shorten(f.Branch, maxLogWord), short(f.Commit))}
	case "push":
		return "pushed", []string{fmt.Sprintf("%s to %s", quote.Shorten(f.Branch, maxLogWord), quote.Shorten(f.Remote, maxLogWord))}
	case "unland":
		return "unlanded", []string{fmt.Sprintf("on %s by %s", quote.Shorten(f.Branch, maxLogWord), short(f.Commit))}
	case "discard":
		if f.TrashRef == "" {
			return "discarded", nil
		}
		return "discarded", []string{"kept as " + f.TrashRef}
	case "keep":
		return "kept", []string{"later changes as " + f.TrashRef}
	case "put":
		return e.Event, []string{format.Count(f.Files, "file", "files")}
	case "allow":
		return "allowed", f.allowed()
	case "denied":
		return e.Event, []string{quote.Shorten(f.Target, maxLogWord) + ": " + quote.Shorten(f.Reason, maxLogLine)}
	}
	return quote.Shorten(e.Event, maxLogWord), nil
}

// origin says what a sandbox was started from.
func (f logFields) origin() string {
	if len(f.Paths) > 0 {
		return "over " + quote.Shorten(strings.Join(f.Paths, ", "), maxLogLine)
	}
	text := "from " + format.ShortOID(f.Base)
	if branch := strings.TrimPrefix(f.Upstream, "refs/heads/"); branch != "" {
		text += " for " + quote.Shorten(branch, maxLogWord)
	}
	if f.Worktree != "" {
		text += " in worktree " + quote.Shorten(f.Worktree, maxLogWord)
	}
	if f.FromSnapshot != "" {
		text += ", with snapshot " + format.ShortOID(f.FromSnapshot)
	}
	return text
}

// conflict says with which invocation a sandbox conflicts, and in which files.
func (f logFields) conflict() string {
	text := "with " + quote.Shorten(f.With, maxLogWord) + ": " + quote.Shorten(strings.Join(f.Paths, ", "), maxLogLine)
	if more := f.Count - len(f.Paths); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// end says how a run ended.
func (f logFields) end() []string {
	lines := textLines(f.Reason, maxLogText)
	for _, warning := range f.Warnings {
		lines = append(lines, "warning: "+quote.Shorten(warning, maxLogLine))
	}
	lines = append(lines, textLines(f.Question, maxLogText)...)
	for _, option := range f.Options {
		lines = append(lines, "- "+quote.Shorten(strings.Join(strings.Fields(option), " "), maxLogLine))
	}
	return lines
}

// allowed says what a sandbox is allowed.
func (f logFields) allowed() []string {
	lines := []string{"outputs " + quote.Shorten(f.Outputs, maxLogLine)}
	for _, path := range f.Read {
		lines = append(lines, "to read "+quote.Shorten(quote.Path(path), maxLogLine))
	}
	for _, path := range f.Write {
		lines = append(lines, "to write "+quote.Shorten(quote.Path(path), maxLogLine))
	}
	return lines
}

// outcome says how a command ended, unless it succeeded.
func (f logFields) outcome() string {
	switch {
	case f.TimedOut:
		return "timed out: "
	case f.Signal != "":
		return "killed by " + quote.Shorten(f.Signal, maxLogWord) + ": "
	case f.ExitCode != 0:
		return fmt.Sprintf("exited %d: ", f.ExitCode)
	}
	return ""
}

// duration returns how long a command took, if that was a second or longer.
func (f logFields) duration() string {
	if d := time.Duration(f.Duration) * time.Millisecond; d >= time.Second {
		return " (" + format.ShortDuration(d) + ")"
	}
	return ""
}

// commandLine returns the words of a command as a shell would read them, shortened.
func commandLine(argv []string) string {
	return quote.Shorten(quote.ShellLine(argv), maxLogLine)
}

// snapshotName returns the name of the snapshot that a ref keeps, such as <id>/2.
func snapshotName(ref string) string {
	return quote.Shorten(strings.TrimPrefix(ref, "refs/agency/snapshots/"), maxLogWord)
}

// textLines returns the lines of a text of at most some bytes.
func textLines(text string, most int) []string {
	if text = strings.TrimRight(quote.Shorten(text, most), "\n"); text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}
