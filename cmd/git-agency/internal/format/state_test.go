package format

import (
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency"
)

func TestStateInWords(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 28, 12, 5, 0, 0, time.UTC)
	zero, one := 0, 1
	for want, i := range map[string]gitagency.Invocation{
		"idle":                 {State: "idle", ExitCode: &zero},
		"exited 1":             {State: "idle", ExitCode: &one},
		"running 3m":           {State: "running", Running: true, RunningSince: now.Add(-3*time.Minute - time.Second), ExitCode: &one},
		"running":              {State: "running", Running: true, RunningSince: now.Add(time.Second)}, // by another clock
		"review":               {State: "review", ExitCode: &one},
		"timed out":            {State: "timed_out"},
		"landed":               {State: "landed", ExitCode: &one},
		"broken: missing-tree": {State: "broken", Broken: true, BrokenReason: "missing-tree"},
	} {
		if got := State(i, now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestShortDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 999 * time.Millisecond: "0s", 59 * time.Second: "59s", time.Minute: "1m", 119 * time.Minute: "1h",
		23 * time.Hour: "23h", 24 * time.Hour: "1d", 364 * 24 * time.Hour: "364d", 800 * 24 * time.Hour: "2y",
	} {
		if got := ShortDuration(d); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
}

func TestNeedsActivity(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"": false, "%(invocation_id) %(status) %(exit_code)": false, "%(state)": true, "x%(dirty)y": true, "%(running_since:relative)": true} {
		spec, err := Parse(text)
		if err != nil || spec.NeedsActivity() != want {
			t.Errorf("%s: got %t, %v", text, spec.NeedsActivity(), err)
		}
	}
}
