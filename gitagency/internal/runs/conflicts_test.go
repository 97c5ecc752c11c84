package runs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/radar"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
)

// A conflict is told when it begins and when it ends, once by the two processes that can see it, and again if it comes back.
func TestNoteConflictTellsChangesOnce(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	other, err := creation.Start(t.Context(), l.Repo, creation.Request{Worktree: "wt"})
	if err != nil {
		t.Fatal(err)
	}
	mine := l.Sandbox.ID
	for i, step := range []struct {
		seenBy string
		paths  []string
		want   string // event; empty for none
	}{
		{seenBy: mine},
		{mine, []string{"a", "b"}, conflictBegan},
		{mine, []string{"a"}, ""},
		{other.ID, []string{"a"}, ""},
		{other.ID, nil, conflictEnded},
		{mine, nil, ""},
		{other.ID, []string{"b"}, conflictBegan},
		{mine, []string{"b"}, ""},
		{mine, nil, conflictEnded},
	} {
		pair := radar.Pair{A: mine, B: other.ID, Clean: len(step.paths) == 0, Paths: step.paths}
		if step.seenBy == other.ID {
			pair.A, pair.B = pair.B, pair.A
		}
		got, isNew, err := noteConflict(l.Repo, pair)
		if err != nil {
			t.Fatal(err)
		}
		if isNew != (step.want != "") || got.Event != step.want {
			t.Errorf("step %d: got %+v, %v, want %q", i, got, isNew, step.want)
		}
		if step.want == conflictBegan && (got.With != pair.B || !slices.Equal(got.Paths, step.paths) || got.Count != len(step.paths)) {
			t.Errorf("step %d: got %+v", i, got)
		}
	}
}

// The event of a conflict is bounded, whatever paths agents make, and has the time to the millisecond.
func TestNoteConflictBoundsPaths(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	l.Repo.Opts.Now = func() time.Time { return time.Unix(1, 234567890) }
	pair := radar.Pair{A: l.Sandbox.ID, B: "other"}
	for i := range 1000 {
		pair.Paths = append(pair.Paths, fmt.Sprintf("%03d", i)+strings.Repeat("/directory", 400))
	}
	got, isNew, err := noteConflict(l.Repo, pair)
	if err != nil || !isNew || got.Count != 1000 || len(got.Paths) != maxConflictPaths || len(got.Paths[0]) > maxConflictPath+len("…") {
		t.Errorf("got %d of %d paths, %v, %v", len(got.Paths), got.Count, isNew, err)
	}
	if got.Time.Nanosecond() != 234e6 {
		t.Errorf("the time is %v", got.Time)
	}
}
