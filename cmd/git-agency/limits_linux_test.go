package main

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLimitsOnTerminalWithJobControl(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		s := l.startOnTerminal(80, nil, "git-agency", "exec", l.id, "--stdin", "--env", "PS1=prompt> ", "--env", "HISTFILE=", "--nice", "4", "--file-size", "1m",
			"--", "bash", "--norc", "--noprofile", "-i")
		s.waitForText("prompt> ")
		s.typeKeys("echo at $(nice) $(ulimit -f)\r")
		priority, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // 20 minus the nice value
		if err != nil {
			l.t.Fatal(err)
		}
		s.waitForText(fmt.Sprintf("at %d 1024", max(4, 20-priority)))
		s.typeKeys("echo begun; sleep 1000\r")
		s.waitForText("begun")
		s.typeUntil("\x1a", "Stopped")
		s.typeKeys("exit; exit 5\r")
		if code := s.wait().code; code != 5 {
			l.t.Errorf("ended with %d", code)
		}
	})
}
