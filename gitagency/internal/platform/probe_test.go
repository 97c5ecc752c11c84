package platform

import (
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/platform/hub"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

func TestNodeReportOfResult(t *testing.T) {
	t.Parallel()
	submitted := time.Date(2026, 1, 28, 12, 0, 0, 0, time.UTC)
	received := submitted.Add(3 * time.Second)
	result := func(reason string, exit int, rec hub.Record) hub.Result {
		rec.Git, rec.Tool, rec.Isolation = "2.39.5", "v1", "os"
		return hub.Result{Node: "n1", Reason: reason, Exit: exit, Record: rec}
	}
	for name, tt := range map[string]struct {
		result  hub.Result
		offset  time.Duration
		problem string
	}{
		"clock agrees": {result(store.StatusFinished, 0, hub.Record{EndedAt: submitted.Add(time.Second)}), 0, ""},
		"clock ahead":  {result(store.StatusFinished, 0, hub.Record{EndedAt: received.Add(time.Minute)}), time.Minute, ""},
		"clock behind": {result(store.StatusFinished, 0, hub.Record{EndedAt: submitted.Add(-time.Hour)}), -time.Hour, ""},
		"no walls":     {result(store.StatusFailed, 6, hub.Record{EndedAt: received, Reason: "walls\n\x1b[31m"}), 0, "walls; [31m"},
		"no time":      {result(store.StatusFinished, 0, hub.Record{}), 0, "its result does not say when it ended"},
		"git failed":   {result(store.StatusFailed, 3, hub.Record{EndedAt: received}), 0, "git ended with exit code 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got NodeReport
			got.fill(tt.result, submitted, received)
			want := NodeReport{Node: "n1", Git: "2.39.5", Tool: "v1", Isolation: "os", ClockOffset: tt.offset, Problem: tt.problem}
			if got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}
