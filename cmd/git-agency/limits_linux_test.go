package main

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLimitsHoldAtATerminalTooAndJobControlStaysWhatItIs(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		s := l.onTerminal(80, nil, "git-agency", "exec", l.id, "--stdin", "--env", "PS1=prompt> ", "--env", "HISTFILE=", "--nice", "4", "--file-size", "1m",
			"--", "bash", "--norc", "--noprofile", "-i")
		s.awaits("prompt> ")
		s.types("echo at $(nice) $(ulimit -f)\r")
		priority, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // 20 minus the nice value
		if err != nil {
			l.t.Fatal(err)
		}
		s.awaits(fmt.Sprintf("at %d 1024", max(4, 20-priority)))
		s.types("echo begun; sleep 1000\r")
		s.awaits("begun")
		s.insists("\x1a", "Stopped")
		s.types("exit; exit 5\r")
		if code := s.ends().code; code != 5 {
			l.t.Errorf("ended with %d", code)
		}
	})
}
