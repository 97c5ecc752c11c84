package main

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency"
)

// atoms are the fields of --format (git's word for them): one for each field of the JSON, and variants of some after a
// colon.
var atoms = []struct {
	name string
	text func(i gitagency.Invocation, now time.Time) string
}{
	{"invocation_id", func(i gitagency.Invocation, _ time.Time) string { return i.ID }},
	{"invocation_name", func(i gitagency.Invocation, _ time.Time) string { return i.Name }},
	{"integration_worktree_id", func(i gitagency.Invocation, _ time.Time) string { return i.WorktreeID }},
	{"integration_worktree", func(i gitagency.Invocation, _ time.Time) string { return i.Worktree }},
	{"sandbox_path", func(i gitagency.Invocation, _ time.Time) string { return i.SandboxPath }},
	{"sandbox_branch", func(i gitagency.Invocation, _ time.Time) string { return i.SandboxBranch }},
	{"base_commit", func(i gitagency.Invocation, _ time.Time) string { return i.BaseCommit }},
	{"base_commit:short", func(i gitagency.Invocation, _ time.Time) string { return shortOID(i.BaseCommit) }},
	{"from_snapshot", func(i gitagency.Invocation, _ time.Time) string { return i.FromSnapshot }},
	{"verifies", func(i gitagency.Invocation, _ time.Time) string { return i.Verifies }},
	{"synced_commit", func(i gitagency.Invocation, _ time.Time) string { return i.SyncedCommit }},
	{"synced_commit:short", func(i gitagency.Invocation, _ time.Time) string { return shortOID(i.SyncedCommit) }},
	{"from_snapshot:short", func(i gitagency.Invocation, _ time.Time) string { return shortOID(i.FromSnapshot) }},
	{"runner", func(i gitagency.Invocation, _ time.Time) string { return i.Runner }},
	{"mode", func(i gitagency.Invocation, _ time.Time) string { return i.Mode }},
	{"status", func(i gitagency.Invocation, _ time.Time) string { return i.Status }},
	{"landing", func(i gitagency.Invocation, _ time.Time) string { return i.Landing }},
	{"trash_ref", func(i gitagency.Invocation, _ time.Time) string { return i.TrashRef }},
	{"started_at", func(i gitagency.Invocation, _ time.Time) string { return i.StartedAt.Format(time.RFC3339Nano) }},
	{"started_at:relative", func(i gitagency.Invocation, now time.Time) string { return ago(now, i.StartedAt) }},
	{"primitives.changeset", func(i gitagency.Invocation, _ time.Time) string { return i.Primitives.Changeset }},
	{"primitives.platform", func(i gitagency.Invocation, _ time.Time) string { return i.Primitives.Platform }},
	{"primitives.isolation", func(i gitagency.Invocation, _ time.Time) string { return i.Primitives.Isolation }},
	{"primitives.outputs", func(i gitagency.Invocation, _ time.Time) string { return i.Primitives.Outputs }},
	{"primitives.software", func(i gitagency.Invocation, _ time.Time) string { return i.Primitives.Software }},
	{"limits.memory", func(i gitagency.Invocation, _ time.Time) string { return numberOrEmpty(i.Limits.Memory) }},
	{"limits.processes", func(i gitagency.Invocation, _ time.Time) string { return numberOrEmpty(int64(i.Limits.Processes)) }},
	{"limits.file_size", func(i gitagency.Invocation, _ time.Time) string { return numberOrEmpty(i.Limits.FileSize) }},
	{"limits.timeout_ms", func(i gitagency.Invocation, _ time.Time) string {
		return numberOrEmpty(i.Limits.Timeout.Milliseconds())
	}},
	{"limits.nice", func(i gitagency.Invocation, _ time.Time) string { return numberOrEmpty(int64(i.Limits.Nice)) }},
	{"limits.best_effort", func(i gitagency.Invocation, _ time.Time) string { return strconv.FormatBool(i.Limits.BestEffort) }},
	{"submitted_at", func(i gitagency.Invocation, _ time.Time) string { return timeOrEmpty(i.SubmittedAt) }},
	{"submitted_at:relative", func(i gitagency.Invocation, now time.Time) string { return agoOrEmpty(now, i.SubmittedAt) }},
	{"submitted_commit", func(i gitagency.Invocation, _ time.Time) string { return i.SubmittedCommit }},
	{"submitted_commit:short", func(i gitagency.Invocation, _ time.Time) string { return shortOID(i.SubmittedCommit) }},
	{"review_note", func(i gitagency.Invocation, _ time.Time) string { return i.ReviewNote }},
	{"rejected_at", func(i gitagency.Invocation, _ time.Time) string { return timeOrEmpty(i.RejectedAt) }},
	{"rejected_at:relative", func(i gitagency.Invocation, now time.Time) string { return agoOrEmpty(now, i.RejectedAt) }},
	{"rejected_reason", func(i gitagency.Invocation, _ time.Time) string { return i.RejectedReason }},
	{"landed_at", func(i gitagency.Invocation, _ time.Time) string { return timeOrEmpty(i.LandedAt) }},
	{"landed_at:relative", func(i gitagency.Invocation, now time.Time) string { return agoOrEmpty(now, i.LandedAt) }},
	{"landed_commit", func(i gitagency.Invocation, _ time.Time) string { return i.LandedCommit }},
	{"landed_commit:short", func(i gitagency.Invocation, _ time.Time) string { return shortOID(i.LandedCommit) }},
	{"landed_before", func(i gitagency.Invocation, _ time.Time) string { return i.LandedBefore }},
	{"landed_before:short", func(i gitagency.Invocation, _ time.Time) string { return shortOID(i.LandedBefore) }},
	{"landed_tip", func(i gitagency.Invocation, _ time.Time) string { return i.LandedTip }},
	{"landed_tip:short", func(i gitagency.Invocation, _ time.Time) string { return shortOID(i.LandedTip) }},
	{"landed_branch", func(i gitagency.Invocation, _ time.Time) string { return i.LandedBranch }},
	{"landed_strategy", func(i gitagency.Invocation, _ time.Time) string { return i.LandedStrategy }},
	{"unlanded_commit", func(i gitagency.Invocation, _ time.Time) string { return i.UnlandedCommit }},
	{"unlanded_commit:short", func(i gitagency.Invocation, _ time.Time) string { return shortOID(i.UnlandedCommit) }},
	{"radar", func(i gitagency.Invocation, _ time.Time) string { return i.Radar }},
	{"unlanded_at", func(i gitagency.Invocation, _ time.Time) string { return timeOrEmpty(i.UnlandedAt) }},
	{"unlanded_at:relative", func(i gitagency.Invocation, now time.Time) string { return agoOrEmpty(now, i.UnlandedAt) }},
	{"broken", func(i gitagency.Invocation, _ time.Time) string { return strconv.FormatBool(i.Broken) }},
	{"broken_reason", func(i gitagency.Invocation, _ time.Time) string { return i.BrokenReason }},
}

// timeOrEmpty formats a time; a zero time, of an event that has not happened, is empty.
func timeOrEmpty(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.Format(time.RFC3339Nano)
}

// agoOrEmpty is ago, but empty for a zero time.
func agoOrEmpty(now, at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return ago(now, at)
}

// numberOrEmpty formats a limit; zero means no limit and is empty.
func numberOrEmpty(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func atomNames() []string {
	var names []string
	for _, a := range atoms {
		names = append(names, a.name)
	}
	return names
}

// formatSpec is a parsed --format: literal text and fields in turn.
type formatSpec []formatPiece

type formatPiece struct {
	literal string
	atom    int // index in atoms of the field after the text; -1 for none
}

// formatError reports an invalid --format.
type formatError struct{ problem string }

func (e *formatError) Error() string { return "--format: " + e.problem }

// parseFormat parses text with %(field), %% and %xx in the syntax of git for-each-ref. Unlike git, it refuses a
// percent sign without meaning instead of printing it.
func parseFormat(s string) (formatSpec, error) {
	var f formatSpec
	var literal strings.Builder
	for {
		text, rest, found := strings.Cut(s, "%")
		literal.WriteString(text)
		if !found {
			return append(f, formatPiece{literal.String(), -1}), nil
		}
		switch {
		case strings.HasPrefix(rest, "%"):
			literal.WriteByte('%')
			s = rest[1:]
		case strings.HasPrefix(rest, "("):
			name, after, closed := strings.Cut(rest[1:], ")")
			if !closed {
				return nil, &formatError{fmt.Sprintf("%q is not closed by a )", "%"+rest)}
			}
			atom, err := findAtom(name)
			if err != nil {
				return nil, err
			}
			f = append(f, formatPiece{literal.String(), atom})
			literal.Reset()
			s = after
		default:
			b, err := hex.DecodeString(rest[:min(2, len(rest))])
			if err != nil || len(b) != 1 {
				return nil, &formatError{fmt.Sprintf("%q is neither a field nor a character; a percent sign is %%%%", "%"+rest[:min(2, len(rest))])}
			}
			literal.Write(b)
			s = rest[2:]
		}
	}
}

func findAtom(name string) (int, error) {
	for i, a := range atoms {
		if a.name == name {
			return i, nil
		}
	}
	message := fmt.Sprintf("unknown field %q", name)
	if near := nearestWord(name, atomNames()); near != "" {
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	return 0, &formatError{message}
}

// printFormat prints each invocation in a format. Values are verbatim, except that on a terminal control characters in
// them are escaped; the text of the format itself never is.
func (t *tool) printFormat(f formatSpec, invocations []gitagency.Invocation) error {
	now, watched := t.now(), t.showsOnTerminal()
	for _, i := range invocations {
		for _, p := range f {
			text := p.literal
			if p.atom >= 0 {
				value := atoms[p.atom].text(i, now)
				if watched {
					value = oneLine(value)
				}
				text += value
			}
			if _, err := t.stdout.WriteString(text); err != nil {
				return err
			}
		}
		if err := t.stdout.WriteByte('\n'); err != nil {
			return err
		}
	}
	return nil
}
