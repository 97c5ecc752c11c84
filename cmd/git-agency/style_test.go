package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestPipeOutputReadsNoStyleConfig checks that a command whose output is a pipe does not start git to read color settings:
// starting git costs more than printing the output.
func TestPipeOutputReadsNoStyleConfig(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "payments")
	trace := filepath.Join(l.dir, "trace")
	started := func(command string) int {
		t.Helper()
		before := strings.Count(l.read(trace), `{"event":"start",`)
		if out := l.try([]string{"GIT_TRACE2_EVENT=" + trace, "NO_COLOR="}, strings.Fields("git-agency "+command)...); out.code != 0 || out.stdout == "" {
			t.Fatalf("%s exited with %d: %s", command, out.code, out.stderr)
		}
		return strings.Count(l.read(trace), `{"event":"start",`) - before
	}
	for _, command := range []string{"version", "version --json", "ls -h", "version --color"} {
		if n := started(command); n != 0 {
			t.Errorf("%s started git %d times", command, n)
		}
	}
	jsonStarts, tableStarts := started("worktree ls --json"), started("worktree ls")
	if jsonStarts == 0 || tableStarts != jsonStarts {
		t.Errorf("git was started %d times for a table and %d times for JSON", tableStarts, jsonStarts)
	}
}
