package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// To start git costs more than to print a line, and scripts ask for many.
func TestIntoAPipeNobodyAsksGitHowThingsShouldLook(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "payments")
	trace := filepath.Join(l.dir, "trace")
	started := func(command string) int {
		t.Helper()
		before := strings.Count(l.read(trace), `{"event":"start",`)
		if out := l.try([]string{"GIT_TRACE2_EVENT=" + trace, "NO_COLOR="}, strings.Fields("git-agency "+command)...); out.code != 0 || out.stdout == "" {
			t.Fatalf("%s ended with %d: %s", command, out.code, out.stderr)
		}
		return strings.Count(l.read(trace), `{"event":"start",`) - before
	}
	for _, command := range []string{"version", "version --json", "ls -h", "version --color"} {
		if n := started(command); n != 0 {
			t.Errorf("%s started git %d times", command, n)
		}
	}
	scripts, people := started("worktree ls --json"), started("worktree ls")
	if scripts == 0 || people != scripts {
		t.Errorf("git was started %d times for a table and %d times for JSON", people, scripts)
	}
}
