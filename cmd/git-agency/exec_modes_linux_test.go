package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// screenOn and screenOff switch on the modes of a full-screen program, and off again in the reverse order.
const (
	screenOn  = "\x1b[?1049h\x1b[?25l\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[?1004h"
	screenOff = "\x1b[?1004l\x1b[?2004l\x1b[?1006l\x1b[?1000l\x1b[?25h\x1b[?1049l"
)

// TestExecSwitchesOffTerminalModes ends full-screen programs before they can clean up, in every way, interactive or not.
// The terminal must be left without their modes, and what the tool prints comes after.
func TestExecSwitchesOffTerminalModes(t *testing.T) {
	t.Parallel()
	const waits = `while :; do sleep 0.01; done`
	cases := map[string]struct {
		flags, then string
		end         func(l *execLab, s *terminalSession)
		message     string
	}{
		"timeout":           {"--timeout 300ms --grace 0", waits, nil, "timed out"},
		"timeout, SIGTERM":  {"--timeout 300ms", waits, nil, "timed out"},
		"SIGKILL":           {"", "kill -KILL $$", nil, ""},
		"failure":           {"", "exit 1", nil, ""},
		"SIGTERM to us":     {"", waits, func(l *execLab, s *terminalSession) { l.signalTool(s, syscall.SIGTERM) }, "terminated"},
		"SIGINT to us":      {"", waits, func(l *execLab, s *terminalSession) { l.signalTool(s, syscall.SIGINT) }, "interrupted"},
		"discard":           {"", waits, func(l *execLab, _ *terminalSession) { l.agency("discard", l.id) }, ""},
		"the command hides": {"", `trap 'exit 0' TERM; ` + waits, func(l *execLab, s *terminalSession) { l.signalTool(s, syscall.SIGTERM) }, "terminated"},
	}
	for i, name := range slices.Sorted(maps.Keys(cases)) {
		c := cases[name]
		for n, input := range []string{"", " </dev/null"} {
			if testing.Short() && i%2 != n {
				continue
			}
			t.Run(name+input, func(t *testing.T) {
				t.Parallel()
				l := newExecLab(t, containments["walls"])
				l.write(filepath.Join(l.tree, "program"), "printf '"+strings.ReplaceAll(screenOn, "\x1b", `\033`)+"drawn'\n"+c.then)
				s := l.startOnTerminal(80, nil, "sh", "-c", "exec git-agency exec "+l.id+" "+c.flags+" -- sh program"+input)
				s.waitForText("drawn")
				if c.end != nil {
					c.end(l, s)
				}
				got := s.wait().stdout
				before, after, found := strings.Cut(got, screenOff)
				if !found || !strings.Contains(before, screenOn) || !strings.Contains(after, c.message) || strings.Contains(after, "\x1b[?") {
					t.Errorf("want the modes switched off, then %q; got %q", c.message, got)
				}
			})
		}
	}
}

// signalTool sends a signal to the tool that runs on a terminal.
func (l *execLab) signalTool(s *terminalSession, signal syscall.Signal) {
	l.t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		l.t.Fatal(err)
	}
}

// TestExecAddsNothingToOutput checks that a command that ends by itself with success, or has switched on no mode, gets
// no extra bytes.
func TestExecAddsNothingToOutput(t *testing.T) {
	t.Parallel()
	l := newExecLab(t, containments["walls"])
	for program, want := range map[string]string{
		`printf 'done\033[?2004h'`:                           "done\x1b[?2004h",
		`printf '\033[31mdone'; exit 3`:                      "\x1b[31mdone",
		`printf '\033[?1049h\033[?1049ldone'; exit 3`:        "\x1b[?1049h\x1b[?1049ldone",
		`printf '\033[?25lx\033[?25hdone'; kill -KILL $$`:    "\x1b[?25lx\x1b[?25hdone",
		`printf '\033[?1000'; printf 'ldone'; kill -TERM $$`: "\x1b[?1000ldone",
	} {
		for _, input := range []string{"", " </dev/null"} {
			l.write(filepath.Join(l.tree, "program"), program)
			if got := l.startOnTerminal(80, nil, "sh", "-c", "exec git-agency exec "+l.id+" -- sh program 2>&1"+input).wait(); !strings.HasPrefix(got.stdout, want) || strings.Contains(strings.TrimPrefix(got.stdout, want), "\x1b[?") {
				t.Errorf("%s%s: got %q, want %q", program, input, got.stdout, want)
			}
		}
	}
}
