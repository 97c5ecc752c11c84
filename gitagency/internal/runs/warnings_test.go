package runs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
)

// Warnings of a detached run are kept in its history: a repeated one once, and not any number of them.
func TestKeepWarningsIsBounded(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	l.Repo.Opts.Now = func() time.Time { return time.Unix(1, 234567890) }
	r := keepWarnings(l.Repo, l.Sandbox.ID)
	for i := range 3 * maxKeptWarnings {
		r.Warn("the same")
		r.Warn("number %d %s", i, strings.Repeat("x", 2*maxEventText))
	}
	var kept []string
	err := r.Store.ReadEvents(r.ID, l.Sandbox.ID, func(line []byte) {
		if e, ok := parseEvent(l.Sandbox.ID, line); ok && e.name == warningEventName {
			kept = append(kept, string(e.line))
		}
	})
	if err != nil || len(kept) != maxKeptWarnings+1 {
		t.Fatalf("got %d warnings, %v", len(kept), err)
	}
	if !strings.Contains(kept[0], `"message":"the same"`) || !strings.Contains(kept[maxKeptWarnings], "further warnings") {
		t.Errorf("got %s and %s", kept[0], kept[maxKeptWarnings])
	}
	if !strings.Contains(kept[0], `"time":"1970-01-01T00:00:01.234Z"`) {
		t.Errorf("the time has no milliseconds: %s", kept[0])
	}
	for i, line := range kept {
		if strings.Contains(line, "the same") != (i == 0) || len(line) > 2*maxEventText {
			t.Errorf("%d: %d bytes: %s", i, len(line), fmt.Sprintf("%.100s", line))
		}
	}
}
