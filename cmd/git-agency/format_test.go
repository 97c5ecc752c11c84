package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/format"
	"github.com/git-agency/git-agency/gitagency"
)

// fullInvocation returns an invocation without empty fields.
func fullInvocation() gitagency.Invocation {
	exitCode, ahead, dirty := 3, 2, 5
	return gitagency.Invocation{
		ID: "20260128120500-b7c9", Name: "arch-agent", WorktreeID: "20260128120000-a3f2", Worktree: "payments",
		SandboxPath: "/data/tree", SandboxBranch: "agency/sandbox-20260128120500-b7c9", BaseCommit: "0123456789abcdef0123456789abcdef01234567",
		FromSnapshot: "76543210fedcba9876543210fedcba9876543210", CloneSource: "local", Verifies: "20260128120000-c8d0", SyncedCommit: "6543210fedcba9876543210fedcba98765432107", Runner: "claude", Mode: "headless", Status: "starting", Landing: "discarded", TrashRef: "refs/agency/trash/20260128120500-b7c9", TrashArchive: "/data/trash/20260128120500-b7c9.tar",
		StartedAt:  time.Date(2026, 1, 28, 12, 5, 0, 0, time.UTC),
		Primitives: gitagency.Primitives{Changeset: "worktree", Platform: "local", Isolation: "os", Outputs: "none", Software: "host", SoftwareImage: "d873389d9241"},
		Limits:     gitagency.Limits{Memory: 1 << 30, Processes: 50, FileSize: 1 << 20, Timeout: time.Minute, Nice: 5, BestEffort: true},
		Broken:     true, BrokenReason: "missing-tree",
		AllowedRead: []string{"/a", "/b"}, AllowedWrite: []string{"private:/c"}, Paths: []string{"/d", "/e"}, CopiedPaths: []gitagency.CopiedPath{{Path: "/e", Reason: "why"}},

		SubmittedAt: time.Date(2026, 1, 28, 12, 5, 1, 25, time.UTC), SubmittedCommit: "1111111111111111111111111111111111111111", ReviewNote: "done",
		RejectedAt: time.Date(2026, 1, 28, 12, 5, 2, 0, time.UTC), RejectedReason: "no tests",
		LandedAt:     time.Date(2026, 1, 28, 12, 5, 2, 0, time.UTC),
		LandedCommit: "2222222222222222222222222222222222222222", LandedBefore: "3333333333333333333333333333333333333333",
		LandedTip: "4444444444444444444444444444444444444444", LandedBranch: "agency/payments-a3f2", LandedStrategy: "merge",
		UnlandedCommit: "5555555555555555555555555555555555555555", UnlandedAt: time.Date(2026, 1, 28, 12, 5, 3, 0, time.UTC),
		Radar: "conflicts(2)",

		Run: gitagency.Run{
			Task: "Add refunds.", SessionID: "0a1b2c3d-0000-4000-8000-000000000000", RunStartedAt: time.Date(2026, 1, 28, 12, 5, 1, 0, time.UTC), Runs: 2, PID: 42,
			PlatformState: "queued", PlatformDetail: "Resources", PlatformJob: "231", PlatformNode: "n1", Attempt: 2,
			StatusReason: "it asks", Warnings: []string{"w"}, LastMessage: "done", CostUSD: 0.125, Tokens: 1234,
			Question: "a?", Options: []string{"b"}, Context: "c", AskedAt: time.Date(2026, 1, 28, 12, 5, 6, 0, time.UTC),
		},

		State: "broken", ExitCode: &exitCode, FinishedAt: time.Date(2026, 1, 28, 12, 5, 4, 0, time.UTC),
		Running: true, RunningSince: time.Date(2026, 1, 28, 12, 5, 5, 0, time.UTC), Ahead: &ahead, Dirty: &dirty,
	}
}

// formatInvocation returns what --format prints for an invocation, four minutes after its start.
func formatInvocation(t *testing.T, text string, i gitagency.Invocation) string {
	t.Helper()
	f, err := format.Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var out bytes.Buffer
	tool := newTool(&out, &bytes.Buffer{}, gitagency.Options{Now: func() time.Time { return i.StartedAt.Add(4 * time.Minute) }, Env: []string{}})
	if err := errors.Join(tool.printFormat(f, []gitagency.Invocation{i}), tool.Stdout.Flush()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestFormatExpandsFields(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		"":                                         "\n",
		"text":                                     "text\n",
		"%(invocation_id)":                         "20260128120500-b7c9\n",
		"%(invocation_id) %(status)":               "20260128120500-b7c9 starting\n",
		"<%(runner)%(mode)>":                       "<claudeheadless>\n",
		"100%% %(runner)%%":                        "100% claude%\n",
		"%(runner)%00%09%0a%0A%7f%e2%82%ac":        "claude\x00\t\n\n\x7f€\n",
		"%(base_commit:short) %(base_commit)":      "0123456789 0123456789abcdef0123456789abcdef01234567\n",
		"%(started_at) = %(started_at:relative)":   "2026-01-28T12:05:00Z = 4 minutes ago\n",
		"%(broken) %(broken_reason)":               "true missing-tree\n",
		"%(submitted_at) %(submitted_at:relative)": "2026-01-28T12:05:01.000000025Z 3 minutes ago\n",
		"%(landed_at) %(landed_at:relative)":       "2026-01-28T12:05:02Z 3 minutes ago\n",
		"%(rejected_at:relative)":                  "3 minutes ago\n",
		"%(unlanded_at:relative)":                  "3 minutes ago\n",
		"%(landed_before:short)":                   "3333333333\n",
		"%(landed_tip:short)":                      "4444444444\n",
		"%(unlanded_commit:short)":                 "5555555555\n",
		"%(primitives.isolation)(%(landing)) é ✓":  "os(discarded) é ✓\n",
	} {
		if got := formatInvocation(t, format, fullInvocation()); got != want {
			t.Errorf("%s: got %q, want %q", format, got, want)
		}
	}
}

func TestParseFormatErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"%(statsu)":           `--format: unknown field "statsu"; did you mean "status"?`,
		"%(base_commit:shrt":  `--format: "%(base_commit:shrt" is not closed by a )`,
		"%(base_commit:long)": `--format: unknown field "base_commit:long"`,
		"%(runner:short)":     `--format: unknown field "runner:short"`,
		"%()":                 `--format: unknown field ""`,
		"%( runner)":          `--format: unknown field " runner"; did you mean "runner"?`,
		"%":                   `--format: "%" is neither a field nor a character; a percent sign is %%`,
		"%%%":                 `--format: "%" is neither a field nor a character; a percent sign is %%`,
		"%0":                  `--format: "%0" is neither a field nor a character; a percent sign is %%`,
		"%0g %(runner)":       `--format: "%0g" is neither a field nor a character; a percent sign is %%`,
		"%runner":             `--format: "%ru" is neither a field nor a character; a percent sign is %%`,
		"%é":                  `--format: "%é" is neither a field nor a character; a percent sign is %%`,
	} {
		_, err := format.Parse(text)
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
		if hints := hintsFor(err); len(hints) != 1 || !strings.Contains(hints[0], "base_commit:short, ") {
			t.Errorf("%s: the hint does not list the fields: %q", text, hints)
		}
	}
}

// TestFormatFieldsMatchJSON checks that --format and --json have the same fields with the same values.
func TestFormatFieldsMatchJSON(t *testing.T) {
	t.Parallel()
	values := map[string]string{}
	data, err := json.Marshal(fullInvocation())
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	flattenJSON(values, "", fields)
	var names []string
	for _, name := range format.FieldNames() {
		if !strings.Contains(name, ":") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if want := slices.Sorted(maps.Keys(values)); !slices.Equal(names, want) {
		t.Fatalf("--format has %q\n--json has %q", names, want)
	}
	for name, value := range values {
		if got := formatInvocation(t, "%("+name+")", fullInvocation()); got != value+"\n" {
			t.Errorf("%s is %q in a format and %q in JSON", name, got, value)
		}
	}
}

// flattenJSON stores the values of nested JSON objects in into, with dots between the names. Objects in a list count as their path.
func flattenJSON(into map[string]string, prefix string, fields map[string]any) {
	for name, value := range fields {
		switch v := value.(type) {
		case map[string]any:
			flattenJSON(into, prefix+name+".", v)
		case bool:
			into[prefix+name] = strconv.FormatBool(v)
		case float64:
			into[prefix+name] = strconv.FormatFloat(v, 'f', -1, 64)
		case []any:
			for i, one := range v {
				if object, is := one.(map[string]any); is {
					v[i] = object["path"]
				}
			}
			into[prefix+name] = strings.Trim(strings.ReplaceAll(fmt.Sprint(v), " ", ":"), "[]")
		default:
			into[prefix+name] = fmt.Sprint(v)
		}
	}
}
