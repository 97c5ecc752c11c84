package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

func TestExecStdinAllocatesTerminal(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		s := l.startOnTerminal(91, nil, "git-agency", "exec", l.id, "--stdin", "--", "sh", "-c", `
	tty | sed s,/.*/,/dev/, ; stty size; test -t 0 && test -t 1 && test -t 2 && echo three; : </dev/tty && echo controls
	read line; echo "read $line"; exit 3`)
		s.waitForText("three")
		s.waitForText("controls")
		s.waitForText("24 91")
		s.typeKeys("words\r")
		s.waitForText("read words")
		if code := s.wait().code; code != 3 {
			l.t.Errorf("ended with %d", code)
		}
	})
}

// TestExecIsInteractiveAtTerminal checks that a command gets a terminal of its own, with the keyboard, when both standard
// input and output of the tool are a terminal in whose foreground it runs.
func TestExecIsInteractiveAtTerminal(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		s := l.startOnTerminal(91, nil, "git", "agency", "exec", l.id, "--", "sh", "-c", `
	stty size; test -t 0 && test -t 1 && test -t 2 && echo three; : </dev/tty && echo controls
	read line; echo "read $line"; exit 3`)
		s.waitForText("three")
		s.waitForText("controls")
		s.waitForText("91")
		s.typeKeys("words\r")
		s.waitForText("read words")
		if code := s.wait().code; code != 3 {
			l.t.Errorf("ended with %d", code)
		}
	})
}

// TestExecInputIsEmptyUnlessAtTerminal checks that the standard input of a command is empty where only one of the two
// streams is a terminal, in the background, and with --json. The shell reads the keys.
func TestExecInputIsEmptyUnlessAtTerminal(t *testing.T) {
	t.Parallel()
	const command = `-- sh -c 'read line; echo "ended with $? and <$line>"'`
	for name, script := range map[string]string{
		"stdout is a pipe":   `git-agency exec $ID ` + command + ` | cat`,
		"stdout is a file":   `git-agency exec $ID ` + command + ` >$OUT; cat $OUT`,
		"stdin is a file":    `git-agency exec $ID ` + command + ` <$IN`,
		"stdin is a pipe":    `echo piped | git-agency exec $ID ` + command,
		"stdin is /dev/null": `git-agency exec $ID ` + command + ` </dev/null`,
		"JSON":               `git-agency exec $ID --json ` + command,
		"in the background":  `set -m; git-agency exec $ID ` + command + ` & wait $!`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newExecLab(t, containments["walls"])
			in := filepath.Join(l.dir, "in")
			l.write(in, "of a file\n")
			env := []string{"ID=" + l.id, "IN=" + in, "OUT=" + filepath.Join(l.dir, "out")}
			s := l.startOnTerminal(80, env, "sh", "-c", `echo ready; read first; `+script+`; read line; echo "shell read $line"`)
			s.waitForText("ready")
			s.typeKeys("first\rsecret\r")
			if got := s.wait(); !strings.Contains(got.stdout, "ended with 1 and <>") || !strings.Contains(got.stdout, "shell read secret\n") {
				t.Errorf("want no input, and the line left for the shell; got %d and %q", got.code, got.stdout)
			}
		})
	}
}

// TestExecHintsAtEmptyInput checks that a shell or interpreter that would read commands and gets an empty input is
// explained, and that no other command is.
func TestExecHintsAtEmptyInput(t *testing.T) {
	t.Parallel()
	l := newExecLab(t, containments["walls"])
	for script, hint := range map[string]bool{
		"git-agency exec $ID -- sh | cat":               true,
		"echo true | git-agency exec $ID -- sh":         true,
		"echo true | git-agency exec $ID --stdin -- sh": false,
		"git-agency exec $ID -- sh </dev/null":          false,
		"git-agency exec $ID -- sh -c true | cat":       false,
		"git-agency exec $ID -- true | cat":             false,
	} {
		got := l.startOnTerminal(80, []string{"ID=" + l.id}, "sh", "-c", script).wait()
		if got.code != 0 || strings.Contains(got.stdout, "is empty; add --stdin") != hint {
			t.Errorf("%s: want a hint: %t; got %d and %q", script, hint, got.code, got.stdout)
		}
	}
}

func TestExecTerminalForwardsCtrlC(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		s := l.startOnTerminal(80, nil, "git-agency", "exec", l.id, "--stdin", "--", "sh", "-c", `trap 'echo caught; exit 6' INT; echo ready; while :; do sleep 0.01; done`)
		s.waitForText("ready")
		s.typeKeys("\x03")
		s.waitForText("caught")
		if code := s.wait().code; code != 6 {
			l.t.Errorf("ended with %d", code)
		}
	})
}

// TestExecTerminalCtrlCIgnored checks that a command that ignores Ctrl-C goes on, as at any terminal, and that Ctrl-\ and
// SIGTERM to the tool end it.
func TestExecTerminalCtrlCIgnored(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		const command = `; echo ready; while :; do read line && echo "read $line"; done`
		s := l.startOnTerminal(80, nil, "git-agency", "exec", l.id, "--", "sh", "-c", "trap '' INT"+command)
		s.waitForText("ready")
		s.typeKeys("\x03\x03still\r")
		s.waitForText("read still")
		s.typeKeys("\x1c")
		if code := s.wait().code; code != 128+int(syscall.SIGQUIT) {
			l.t.Errorf("Ctrl-\\ ended it with %d", code)
		}
		s = l.startOnTerminal(80, nil, "git-agency", "exec", l.id, "--", "sh", "-c", "trap '' INT QUIT"+command)
		s.waitForText("ready")
		s.typeKeys("\x1cstill\r")
		s.waitForText("read still")
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			l.t.Fatal(err)
		}
		if code := s.wait().code; code != 128+int(syscall.SIGTERM) {
			l.t.Errorf("SIGTERM ended it with %d", code)
		}
	})
}

func TestExecTerminalJobControl(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		s := l.startOnTerminal(80, nil, "git-agency", "exec", l.id, "--stdin", "--env", "PS1=prompt> ", "--env", "HISTFILE=", "--", "bash", "--norc", "--noprofile", "-i")
		s.waitForText("prompt> ")
		s.typeKeys("echo begun; sleep 1000\r")
		s.waitForText("begun") // an earlier Ctrl-Z would flush the typed input
		s.typeUntil("\x1a", "Stopped")
		s.typeKeys("jobs; kill %1; echo $((6*7))\r")
		s.waitForText("42")
		s.typeKeys("exit 5; exit 5\r") // the first exit may only warn of a stopped job
		if code := s.wait().code; code != 5 {
			l.t.Errorf("ended with %d", code)
		}
		if strings.Contains(s.text(), "no job control") {
			l.t.Errorf("bash has no job control:\n%s", s.text())
		}
	})
}

func TestExecTerminalResize(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		s := l.startOnTerminal(80, nil, "git-agency", "exec", l.id, "--stdin", "--", "sh", "-c", `trap 'stty size; exit 0' WINCH; stty size; while :; do sleep 0.01; done`)
		s.waitForText("24 80")
		size := struct{ rows, columns, x, y uint16 }{33, 101, 0, 0}
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, s.master.Fd(), syscall.TIOCSWINSZ, uintptr(unsafe.Pointer(&size))); errno != 0 {
			l.t.Fatal(errno)
		}
		s.waitForText("33 101")
		if code := s.wait().code; code != 0 {
			l.t.Errorf("ended with %d", code)
		}
	})
}

// TestExecRedirectedOutputIsNoTerminal redirects stdout to a file while stdin is a terminal. The file must get
// the bytes unchanged, without a pseudo-terminal in between.
func TestExecRedirectedOutputIsNoTerminal(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		out := filepath.Join(l.dir, "out")
		s := l.startOnTerminal(80, nil, "sh", "-c", `git-agency exec `+l.id+` --stdin -- sh -c 'echo asking >&2; read x; echo "got $x"; test -t 1 || echo file' >`+out)
		s.waitForText("asking")
		s.typeKeys("it\r")
		if code := s.wait().code; code != 0 {
			l.t.Errorf("ended with %d", code)
		}
		if got := l.read(out); got != "got it\nfile\n" {
			l.t.Errorf("got %q", got)
		}
	})
}

func TestExecRestoresTerminalMode(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		for _, end := range []string{"exit 0", "kill -9 $$", "sleep 1000"} {
			s := l.startOnTerminal(80, nil, "sh", "-c", `before=$(stty -g)
	git-agency exec `+l.id+` --stdin --timeout 300ms --grace 0 -- sh -c 'stty raw -echo; `+end+`'
	test "$(stty -g)" = "$before" && echo same; `)
			s.waitForText("same")
			s.wait()
		}
		if left, err := os.ReadDir(filepath.Join(l.tree, ".agency")); err != nil || len(left) != 1 {
			l.t.Errorf(".agency has %v, %v; want one entry", left, err)
		}
	})
}
