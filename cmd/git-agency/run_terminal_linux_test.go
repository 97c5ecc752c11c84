package main

import (
	"strings"
	"testing"
)

// The line that shows what an agent did last is only drawn where the agent itself does not write on the terminal. It is
// drawn five times a second.
func TestRunLeavesTerminalToItsProgram(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "adopt")
	l.git("config", "--global", "agency.robot.command", "sleep 1; echo drawn")
	for _, argv := range [][]string{
		{"git-agency", "run", "--runner", "robot"},
		{"git-agency", "run", "-p", "task", "--", "sh", "-c", "sleep 1; echo drawn"},
	} {
		o := l.startOnTerminal(80, nil, argv...).wait()
		if o.code != 0 || !strings.Contains(o.stdout, "drawn") || strings.Contains(o.stdout, "starts") {
			t.Errorf("%q: %d\n%q", argv, o.code, o.stdout)
		}
	}
}
