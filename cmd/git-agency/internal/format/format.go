// Package format turns results of the library into text and JSON: the fields of --format, states, counts and summaries in
// words, and JSON that is too large to build in memory. It must never write output, or know the
// width or colours of a terminal.
package format

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/argv"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/term"
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
	{"integration_branch", func(i gitagency.Invocation, _ time.Time) string { return i.IntegrationBranch }},
	{"base_commit:short", func(i gitagency.Invocation, _ time.Time) string { return ShortOID(i.BaseCommit) }},
	{"from_snapshot", func(i gitagency.Invocation, _ time.Time) string { return i.FromSnapshot }},
	{"clone_source", func(i gitagency.Invocation, _ time.Time) string { return i.CloneSource }},
	{"verifies", func(i gitagency.Invocation, _ time.Time) string { return i.Verifies }},
	{"synced_commit", func(i gitagency.Invocation, _ time.Time) string { return i.SyncedCommit }},
	{"synced_commit:short", func(i gitagency.Invocation, _ time.Time) string { return ShortOID(i.SyncedCommit) }},
	{"from_snapshot:short", func(i gitagency.Invocation, _ time.Time) string { return ShortOID(i.FromSnapshot) }},
	{"runner", func(i gitagency.Invocation, _ time.Time) string { return i.Runner }},
	{"mode", func(i gitagency.Invocation, _ time.Time) string { return i.Mode }},
	{"status", func(i gitagency.Invocation, _ time.Time) string { return i.Status }},
	{"landing", func(i gitagency.Invocation, _ time.Time) string { return i.Landing }},
	{"trash_ref", func(i gitagency.Invocation, _ time.Time) string { return i.TrashRef }},
	{"trash_archive", func(i gitagency.Invocation, _ time.Time) string { return i.TrashArchive }},
	{"started_at", func(i gitagency.Invocation, _ time.Time) string { return i.StartedAt.Format(time.RFC3339Nano) }},
	{"started_at:relative", func(i gitagency.Invocation, now time.Time) string { return term.Ago(now, i.StartedAt) }},
	{"primitives.changeset", func(i gitagency.Invocation, _ time.Time) string { return i.Primitives.Changeset }},
	{"primitives.platform", func(i gitagency.Invocation, _ time.Time) string { return i.Primitives.Platform }},
	{"primitives.isolation", func(i gitagency.Invocation, _ time.Time) string { return i.Primitives.Isolation }},
	{"primitives.outputs", func(i gitagency.Invocation, _ time.Time) string { return i.Primitives.Outputs }},
	{"primitives.software", func(i gitagency.Invocation, _ time.Time) string { return i.Primitives.Software }},
	{"primitives.software_image", func(i gitagency.Invocation, _ time.Time) string { return i.Primitives.SoftwareImage }},
	{"limits.memory", func(i gitagency.Invocation, _ time.Time) string { return numberOrEmpty(i.Limits.Memory) }},
	{"limits.processes", func(i gitagency.Invocation, _ time.Time) string { return numberOrEmpty(int64(i.Limits.Processes)) }},
	{"limits.file_size", func(i gitagency.Invocation, _ time.Time) string { return numberOrEmpty(i.Limits.FileSize) }},
	{"limits.timeout_ms", func(i gitagency.Invocation, _ time.Time) string {
		return numberOrEmpty(i.Limits.Timeout.Milliseconds())
	}},
	{"limits.nice", func(i gitagency.Invocation, _ time.Time) string { return numberOrEmpty(int64(i.Limits.Nice)) }},
	{"limits.best_effort", func(i gitagency.Invocation, _ time.Time) string { return strconv.FormatBool(i.Limits.BestEffort) }},
	{"allowed_read", func(i gitagency.Invocation, _ time.Time) string { return strings.Join(i.AllowedRead, ":") }},
	{"allowed_write", func(i gitagency.Invocation, _ time.Time) string { return strings.Join(i.AllowedWrite, ":") }},
	{"paths", func(i gitagency.Invocation, _ time.Time) string { return strings.Join(i.Paths, ":") }},
	{"copied_paths", func(i gitagency.Invocation, _ time.Time) string { return joinCopied(i.CopiedPaths) }},
	{"submitted_at", func(i gitagency.Invocation, _ time.Time) string { return timeOrEmpty(i.SubmittedAt) }},
	{"submitted_at:relative", func(i gitagency.Invocation, now time.Time) string { return agoOrEmpty(now, i.SubmittedAt) }},
	{"submitted_commit", func(i gitagency.Invocation, _ time.Time) string { return i.SubmittedCommit }},
	{"submitted_commit:short", func(i gitagency.Invocation, _ time.Time) string { return ShortOID(i.SubmittedCommit) }},
	{"review_note", func(i gitagency.Invocation, _ time.Time) string { return i.ReviewNote }},
	{"rejected_at", func(i gitagency.Invocation, _ time.Time) string { return timeOrEmpty(i.RejectedAt) }},
	{"rejected_at:relative", func(i gitagency.Invocation, now time.Time) string { return agoOrEmpty(now, i.RejectedAt) }},
	{"rejected_reason", func(i gitagency.Invocation, _ time.Time) string { return i.RejectedReason }},
	{"landed_at", func(i gitagency.Invocation, _ time.Time) string { return timeOrEmpty(i.LandedAt) }},
	{"landed_at:relative", func(i gitagency.Invocation, now time.Time) string { return agoOrEmpty(now, i.LandedAt) }},
	{"landed_commit", func(i gitagency.Invocation, _ time.Time) string { return i.LandedCommit }},
	{"landed_commit:short", func(i gitagency.Invocation, _ time.Time) string { return ShortOID(i.LandedCommit) }},
	{"landed_before", func(i gitagency.Invocation, _ time.Time) string { return i.LandedBefore }},
	{"landed_before:short", func(i gitagency.Invocation, _ time.Time) string { return ShortOID(i.LandedBefore) }},
	{"landed_tip", func(i gitagency.Invocation, _ time.Time) string { return i.LandedTip }},
	{"landed_tip:short", func(i gitagency.Invocation, _ time.Time) string { return ShortOID(i.LandedTip) }},
	{"landed_branch", func(i gitagency.Invocation, _ time.Time) string { return i.LandedBranch }},
	{"landed_strategy", func(i gitagency.Invocation, _ time.Time) string { return i.LandedStrategy }},
	{"unlanded_commit", func(i gitagency.Invocation, _ time.Time) string { return i.UnlandedCommit }},
	{"unlanded_commit:short", func(i gitagency.Invocation, _ time.Time) string { return ShortOID(i.UnlandedCommit) }},
	{"radar", func(i gitagency.Invocation, _ time.Time) string { return i.Radar }},
	{"unlanded_at", func(i gitagency.Invocation, _ time.Time) string { return timeOrEmpty(i.UnlandedAt) }},
	{"unlanded_at:relative", func(i gitagency.Invocation, now time.Time) string { return agoOrEmpty(now, i.UnlandedAt) }},
	{"task", func(i gitagency.Invocation, _ time.Time) string { return i.Task }},
	{"session_id", func(i gitagency.Invocation, _ time.Time) string { return i.SessionID }},
	{"run_started_at", func(i gitagency.Invocation, _ time.Time) string { return timeOrEmpty(i.RunStartedAt) }},
	{"run_started_at:relative", func(i gitagency.Invocation, now time.Time) string { return agoOrEmpty(now, i.RunStartedAt) }},
	{"runs", func(i gitagency.Invocation, _ time.Time) string { return numberOrEmpty(int64(i.Runs)) }},
	{"pid", func(i gitagency.Invocation, _ time.Time) string { return numberOrEmpty(int64(i.PID)) }},
	{"platform_state", func(i gitagency.Invocation, _ time.Time) string { return i.PlatformState }},
	{"platform_detail", func(i gitagency.Invocation, _ time.Time) string { return i.PlatformDetail }},
	{"platform_job", func(i gitagency.Invocation, _ time.Time) string { return i.PlatformJob }},
	{"platform_node", func(i gitagency.Invocation, _ time.Time) string { return i.PlatformNode }},
	{"attempt", func(i gitagency.Invocation, _ time.Time) string { return numberOrEmpty(int64(i.Attempt)) }},
	{"status_reason", func(i gitagency.Invocation, _ time.Time) string { return i.StatusReason }},
	{"run_warnings", func(i gitagency.Invocation, _ time.Time) string { return strings.Join(i.Warnings, "; ") }},
	{"last_message", func(i gitagency.Invocation, _ time.Time) string { return i.LastMessage }},
	{"cost_usd", func(i gitagency.Invocation, _ time.Time) string { return Cost(i.CostUSD) }},
	{"tokens", func(i gitagency.Invocation, _ time.Time) string { return numberOrEmpty(i.Tokens) }},
	{"question", func(i gitagency.Invocation, _ time.Time) string { return i.Question }},
	{"question_options", func(i gitagency.Invocation, _ time.Time) string { return strings.Join(i.Options, "; ") }},
	{"question_context", func(i gitagency.Invocation, _ time.Time) string { return i.Context }},
	{"asked_at", func(i gitagency.Invocation, _ time.Time) string { return timeOrEmpty(i.AskedAt) }},
	{"asked_at:relative", func(i gitagency.Invocation, now time.Time) string { return agoOrEmpty(now, i.AskedAt) }},
	{"state", func(i gitagency.Invocation, _ time.Time) string { return i.State }},
	{"running", func(i gitagency.Invocation, _ time.Time) string { return strconv.FormatBool(i.Running) }},
	{"running_since", func(i gitagency.Invocation, _ time.Time) string { return timeOrEmpty(i.RunningSince) }},
	{"running_since:relative", func(i gitagency.Invocation, now time.Time) string { return agoOrEmpty(now, i.RunningSince) }},
	{"exit_code", func(i gitagency.Invocation, _ time.Time) string { return Number(i.ExitCode) }},
	{"finished_at", func(i gitagency.Invocation, _ time.Time) string { return timeOrEmpty(i.FinishedAt) }},
	{"finished_at:relative", func(i gitagency.Invocation, now time.Time) string { return agoOrEmpty(now, i.FinishedAt) }},
	{"ahead", func(i gitagency.Invocation, _ time.Time) string { return Number(i.Ahead) }},
	{"dirty", func(i gitagency.Invocation, _ time.Time) string { return Number(i.Dirty) }},
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
	return term.Ago(now, at)
}

// numberOrEmpty formats a limit; zero means no limit and is empty.
func numberOrEmpty(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// Cost formats an amount of dollars; zero is unknown and empty.
func Cost(usd float64) string {
	if usd == 0 {
		return ""
	}
	return strconv.FormatFloat(usd, 'f', -1, 64)
}

// Number formats a number; nil, which is unknown, is empty.
func Number(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

// FieldNames lists the fields of --format.
func FieldNames() []string {
	var names []string
	for _, a := range atoms {
		names = append(names, a.name)
	}
	return names
}

// Spec is a parsed --format: literal text and fields in turn.
type Spec []piece

type piece struct {
	literal string
	atom    int // index in atoms of the field after the text; -1 for none
}

// Error reports an invalid --format.
type Error struct{ problem string }

func (e *Error) Error() string { return "--format: " + e.problem }

// Parse parses text with %(field), %% and %xx in the syntax of git for-each-ref. Unlike git, it refuses a
// percent sign without meaning instead of printing it.
func Parse(s string) (Spec, error) {
	var f Spec
	var literal strings.Builder
	for {
		text, rest, found := strings.Cut(s, "%")
		literal.WriteString(text)
		if !found {
			return append(f, piece{literal.String(), -1}), nil
		}
		switch {
		case strings.HasPrefix(rest, "%"):
			literal.WriteByte('%')
			s = rest[1:]
		case strings.HasPrefix(rest, "("):
			name, after, closed := strings.Cut(rest[1:], ")")
			if !closed {
				return nil, &Error{fmt.Sprintf("%q is not closed by a )", "%"+rest)}
			}
			atom, err := findAtom(name)
			if err != nil {
				return nil, err
			}
			f = append(f, piece{literal.String(), atom})
			literal.Reset()
			s = after
		default:
			b, err := hex.DecodeString(rest[:min(2, len(rest))])
			if err != nil || len(b) != 1 {
				return nil, &Error{fmt.Sprintf("%q is neither a field nor a character; a percent sign is %%%%", "%"+rest[:min(2, len(rest))])}
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
	if near := argv.NearestWord(name, FieldNames()); near != "" {
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	return 0, &Error{message}
}

// Expand returns the text of an invocation. Every value passes through shown; the text of the format itself does not.
func (f Spec) Expand(i gitagency.Invocation, now time.Time, shown func(value string) string) string {
	var b strings.Builder
	for _, p := range f {
		b.WriteString(p.literal)
		if p.atom >= 0 {
			b.WriteString(shown(atoms[p.atom].text(i, now)))
		}
	}
	return b.String()
}

// activityFields are the fields that gitagency.ListRequest.Activity sets.
var activityFields = []string{"state", "running", "running_since", "running_since:relative", "ahead", "dirty"}

// NeedsActivity reports whether the format has a field that is not in the record of an invocation.
func (f Spec) NeedsActivity() bool {
	return slices.ContainsFunc(f, func(p piece) bool { return p.atom >= 0 && slices.Contains(activityFields, atoms[p.atom].name) })
}

// State says in words what an invocation is doing, such as "running 3m" or "exited 1".
func State(i gitagency.Invocation, now time.Time) string {
	switch {
	case i.Broken:
		return "broken: " + i.BrokenReason
	case i.Running && i.State != gitagency.StatusBlocked && !i.RunningSince.IsZero() && now.After(i.RunningSince):
		return i.State + " " + ShortDuration(now.Sub(i.RunningSince))
	case i.State == gitagency.StateIdle && i.ExitCode != nil && *i.ExitCode != 0:
		return "exited " + Number(i.ExitCode)
	}
	return strings.ReplaceAll(i.State, "_", " ")
}

// ShortDuration formats a duration with its largest unit, such as "3m"; less than a second is "0s".
func ShortDuration(d time.Duration) string {
	const day = 24 * time.Hour
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{365 * day, "y"}, {day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if n := int(d / unit.size); n >= 1 {
			return strconv.Itoa(n) + unit.name
		}
	}
	return strconv.Itoa(max(int(d/time.Second), 0)) + "s"
}

// ShortOID abbreviates an object id to 10 digits.
func ShortOID(oid string) string { return oid[:min(len(oid), 10)] }

// joinCopied returns the paths of copied directories.
func joinCopied(copied []gitagency.CopiedPath) string {
	paths := make([]string, len(copied))
	for n, p := range copied {
		paths[n] = p.Path
	}
	return strings.Join(paths, ":")
}
