package main

import (
	"path/filepath"
	"regexp"
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

// A program that handles Ctrl-C decides itself how its run ends, also one that agency.<runner>.command names.
func TestRunOfProgramThatHandlesInterrupt(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "adopt")
	l.write(filepath.Join(l.repo, "agent.sh"), "trap 'echo interrupted' INT\necho ready\nuntil read line; do :; done\necho \"read $line\"\n")
	l.git("add", "agent.sh")
	l.git("commit", "-q", "-m", "agent")
	l.git("config", "--global", "agency.robot.command", "bash ./agent.sh")
	s := l.startOnTerminal(80, nil, "git-agency", "run", "--runner", "robot")
	s.waitForText("ready")
	s.typeKeys("\x03")
	s.typeKeys("more\r")
	if o := s.wait(); o.code != 0 || !strings.Contains(o.stdout, "read more") {
		t.Errorf("%d\n%q", o.code, o.stdout)
	}
}

// What a program writes on the terminal of the user is not logged, so no hint leads to the log.
func TestRunOnTerminalDoesNotNameItsLog(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "adopt")
	o := l.startOnTerminal(200, nil, "git-agency", "run", "--tty", "--", "sh", "-c", "exit 3").wait()
	if o.code != 3 || !strings.Contains(o.stdout, "git agency resume") || strings.Contains(o.stdout, "git agency logs") {
		t.Errorf("%d %q", o.code, o.stdout)
	}
}

// What a program writes on the terminal of the user is not logged, and logs says so instead of printing nothing. With --raw
// it prints only output.
func TestLogsOfRunOnTerminalSayThatItIsNotRecorded(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "adopt")
	l.startOnTerminal(200, nil, "git-agency", "run", "--tty", "--", "sh", "-c", "echo drawn").wait()
	for _, c := range []struct {
		argv []string
		want bool
	}{{[]string{"logs", "@"}, true}, {[]string{"logs", "-f", "@"}, true}, {[]string{"logs", "--raw", "@"}, false}} {
		o := l.try(nil, append([]string{"git-agency"}, c.argv...)...)
		if o.code != 0 || o.stdout != "" || strings.Contains(o.stderr, "is not recorded; 'git agency log @' shows") != c.want {
			t.Errorf("%q: %d %q %q", c.argv, o.code, o.stdout, o.stderr)
		}
	}
}

// After runs that finished, the terminal shows how each ended and what to type next.
func TestRunOnTerminalSaysWhatToTypeNext(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "adopt")
	commit := []string{"--", "sh", "-c", "echo work >work; git add work; git commit -q -m work"}
	single := l.startOnTerminal(200, nil, append([]string{"git-agency", "run"}, commit...)...).wait()
	if !regexp.MustCompile(`to see its work: git agency diff (\S+); to land it: git agency land \S+\n$`).MatchString(single.stdout) {
		t.Errorf("one run: %q", single.stdout)
	}
	both := l.startOnTerminal(200, nil, append([]string{"git-agency", "run", "-n", "2"}, commit...)...).wait()
	if !regexp.MustCompile(`: finished\n\S+ .*: finished\n.*to compare two: git agency diff \S+ \S+; to land one: git agency land \S+\n$`).MatchString(both.stdout) {
		t.Errorf("two runs: %q", both.stdout)
	}
	none := l.startOnTerminal(200, nil, "git-agency", "run", "--", "true").wait()
	if strings.Contains(none.stdout, "to land it") {
		t.Errorf("a run without commits: %q", none.stdout)
	}
}
