package core

import (
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/store"
)

func TestSetState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		inv  Invocation
		want string
	}{
		{Invocation{Status: "starting"}, "idle"},
		{Invocation{Status: "starting", Running: true}, "running"},
		{Invocation{Status: "starting", Landing: store.Review}, "review"},
		{Invocation{Status: "starting", Landing: store.Rejected}, "rejected"},
		{Invocation{Status: "starting", Landing: store.Review, Running: true}, "running"},
		{Invocation{Status: "finished"}, "finished"},
		{Invocation{Status: "failed"}, "failed"},
		{Invocation{Status: "blocked"}, "blocked"},
		{Invocation{Status: "stopped"}, "stopped"},
		{Invocation{Status: "timed_out"}, "timed_out"},
		{Invocation{Status: "blocked", Running: true}, "running"},
		{Invocation{Status: "finished", Landing: store.Review}, "review"},
		{Invocation{Status: "running"}, "running"},
		{Invocation{Status: "running", Running: true, Run: Run{PID: 1, Question: "which?"}}, "blocked"},
		{Invocation{Status: "running", Run: Run{PID: 1}}, "running"},
		{Invocation{Status: "blocked", Running: true, Run: Run{PID: 1, Question: "which?"}}, "running"}, // it is being resumed
		{Invocation{Status: "running", Landing: store.Discarded, Run: Run{PID: 1, Question: "which?"}}, "discarded"},
		{Invocation{Status: "of a later version", Landing: "of a later version"}, "idle"},
		{Invocation{Status: "finished", Landing: store.Landed}, "landed"},
		{Invocation{Landing: store.Landed, UnlandedCommit: "c0ffee"}, "unlanded"},
		{Invocation{Landing: store.Discarded}, "discarded"},
		{Invocation{Landing: store.Discarded, Running: true}, "discarded"}, // its commands are being ended
		{Invocation{Broken: true, Landing: store.Review, Running: true}, "broken"},
	} {
		if c.inv.SetState(); c.inv.State != c.want {
			t.Errorf("%+v: got %q, want %q", c.inv, c.inv.State, c.want)
		}
	}
}
