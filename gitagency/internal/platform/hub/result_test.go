package hub

import (
	"fmt"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/store"
)

const (
	testID     = "20260128120500-b7c9"
	testRecord = "1111111111111111111111111111111111111111"
)

// resultCommit returns the content of a commit with trailers, "Key: value" each, in place of those of a valid result.
func resultCommit(trailers ...string) string {
	values := map[string]string{
		invocationTrailer: testID, exitTrailer: "0", reasonTrailer: store.StatusFinished, nodeTrailer: "n1", attemptTrailer: "1", runTrailer: "1", recordTrailer: testRecord,
	}
	for _, trailer := range trailers {
		key, value, _ := strings.Cut(trailer, ": ")
		values[key] = value
	}
	text := "tree 2222222222222222222222222222222222222222\nparent 3333333333333333333333333333333333333333\nparent " + testRecord +
		"\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nagency: result\n\nAgency-Exit: 99 in the text above\n\n"
	for key, value := range values {
		text += fmt.Sprintf("%s: %s\n", key, value)
	}
	return text
}

func TestParseResult(t *testing.T) {
	t.Parallel()
	r, err := parseResult(resultCommit("Agency-Exit: 5", "Agency-Reason: failed", "Agency-Node: n\x1b[31m2", "Agency-Attempt: 3", "Agency-Run: 2"), testID)
	if err != nil || r.Exit != 5 || r.Reason != store.StatusFailed || r.Node != "n?[31m2" || r.Attempt != 3 || r.Number != 2 || r.recordCommit != testRecord {
		t.Errorf("%+v, %v", r, err)
	}
	for trailer, want := range map[string]string{
		"Agency-Invocation: 20260128120500-b7c8": "names the invocation",
		"Agency-Exit: 256":                       "exit code is 256",
		"Agency-Exit: -1":                        "trailer Agency-Exit",
		"Agency-Exit: +1":                        "trailer Agency-Exit",
		"Agency-Exit: ":                          "trailer Agency-Exit",
		"Agency-Attempt: 99999999999999999999":   "trailer Agency-Attempt",
		"Agency-Run: 1 2":                        "trailer Agency-Run",
		"Agency-Reason: running":                 "trailer Agency-Reason",
		"Agency-Reason: done\x1b[0m":             "trailer Agency-Reason",
		"Agency-Record: --help":                  "none of its parents",
		"Agency-Record: 4444":                    "none of its parents",
	} {
		_, err := parseResult(resultCommit(trailer), testID)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %v, want an error with %q", trailer, err, want)
		}
	}
}

func FuzzParseResult(f *testing.F) {
	f.Add(resultCommit())
	f.Add("tree x\n\n")
	f.Fuzz(func(t *testing.T, data string) {
		r, err := parseResult(data, testID)
		if err == nil && (r.Invocation != testID || r.Exit < 0 || r.Exit > 255 || r.Attempt < 0 || strings.ContainsAny(r.Node, "\x1b\n\x00")) {
			t.Errorf("%q was parsed as %+v", data, r)
		}
	})
}

// Of all results that attempts at a run can push, in any order, the same one counts in the end: a final one, if there is one.
func TestOneResultCounts(t *testing.T) {
	t.Parallel()
	partial := func(run, attempt int) Result {
		return Result{Number: run, Attempt: attempt, Reason: store.StatusStopped}
	}
	final := func(run, attempt int) Result {
		return Result{Number: run, Attempt: attempt, Reason: store.StatusFinished}
	}
	for _, tt := range []struct {
		now, later Result
		replaced   bool
	}{
		{partial(1, 1), partial(1, 2), true},
		{partial(1, 2), partial(1, 1), false},
		{partial(1, 1), partial(1, 1), false},
		{partial(1, 2), final(1, 1), true}, // an orphan that finished has all of the work
		{partial(1, 1), final(1, 2), true},
		{final(1, 1), final(1, 2), false},
		{final(1, 2), final(1, 1), false},
		{final(1, 1), partial(1, 2), false},
		{final(1, 1), partial(2, 1), true}, // the user has resumed it
		{final(1, 1), final(2, 1), true},
		{partial(2, 1), final(1, 5), false}, // an orphan of the run before
		{final(2, 1), final(1, 5), false},
	} {
		if got := tt.now.IsReplacedBy(tt.later); got != tt.replaced {
			t.Errorf("%+v is replaced by %+v: %t", tt.now, tt.later, got)
		}
	}
}
