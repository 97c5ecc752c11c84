package main

import "testing"

func TestLimitsHoldAtATerminalTooAndJobControlStaysWhatItIs(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		s := l.onTerminal(80, nil, "git-agency", "exec", l.id, "--stdin", "--env", "PS1=prompt> ", "--env", "HISTFILE=", "--nice", "4", "--file-size", "1m",
			"--", "bash", "--norc", "--noprofile", "-i")
		s.awaits("prompt> ")
		s.types("echo at $(nice) $(ulimit -f)\r")
		s.awaits("at 4 1024")
		s.types("echo begun; sleep 1000\r")
		s.awaits("begun")
		s.insists("\x1a", "Stopped")
		s.types("exit; exit 5\r")
		if code := s.ends().code; code != 5 {
			l.t.Errorf("ended with %d", code)
		}
	})
}
