package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

func TestACommandThatReadsFromATerminalGetsOneOfItsOwn(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		s := l.onTerminal(91, nil, "git-agency", "exec", l.id, "--stdin", "--", "sh", "-c", `
	tty | sed s,/.*/,/dev/, ; stty size; test -t 0 && test -t 1 && test -t 2 && echo three; : </dev/tty && echo controls
	read line; echo "read $line"; exit 3`)
		s.awaits("three")
		s.awaits("controls")
		s.awaits("24 91")
		s.types("words\r")
		s.awaits("read words")
		if code := s.ends().code; code != 3 {
			l.t.Errorf("ended with %d", code)
		}
	})
}

func TestCtrlCAtATerminalIsTheCommandsAndNotOurs(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		s := l.onTerminal(80, nil, "git-agency", "exec", l.id, "--stdin", "--", "sh", "-c", `trap 'echo caught; exit 6' INT; echo ready; while :; do sleep 0.01; done`)
		s.awaits("ready")
		s.types("\x03")
		s.awaits("caught")
		if code := s.ends().code; code != 6 {
			l.t.Errorf("ended with %d", code)
		}
	})
}

func TestAShellAtATerminalHasJobControl(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		s := l.onTerminal(80, nil, "git-agency", "exec", l.id, "--stdin", "--env", "PS1=prompt> ", "--env", "HISTFILE=", "--", "bash", "--norc", "--noprofile", "-i")
		s.awaits("prompt> ")
		s.types("echo begun; sleep 1000\r")
		s.awaits("begun") // before that, the key would take away what was typed
		s.insists("\x1a", "Stopped")
		s.types("jobs; kill %1; echo $((6*7))\r")
		s.awaits("42")
		s.types("exit 5; exit 5\r") // at the first it may still say that a job is stopped
		if code := s.ends().code; code != 5 {
			l.t.Errorf("ended with %d", code)
		}
		if strings.Contains(s.seen(), "no job control") {
			l.t.Errorf("it said:\n%s", s.seen())
		}
	})
}

func TestAWindowThatChangesItsSizeDoesSoForTheCommand(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		s := l.onTerminal(80, nil, "git-agency", "exec", l.id, "--stdin", "--", "sh", "-c", `trap 'stty size; exit 0' WINCH; stty size; while :; do sleep 0.01; done`)
		s.awaits("24 80")
		size := struct{ rows, columns, x, y uint16 }{33, 101, 0, 0}
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, s.keyboard.Fd(), syscall.TIOCSWINSZ, uintptr(unsafe.Pointer(&size))); errno != 0 {
			l.t.Fatal(errno)
		}
		s.awaits("33 101")
		if code := s.ends().code; code != 0 {
			l.t.Errorf("ended with %d", code)
		}
	})
}

// Somebody at a terminal who sends the output elsewhere wants it as it is.
func TestOutputThatGoesElsewhereIsNoTerminal(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		out := filepath.Join(l.dir, "out")
		s := l.onTerminal(80, nil, "sh", "-c", `git-agency exec `+l.id+` --stdin -- sh -c 'echo asking >&2; read x; echo "got $x"; test -t 1 || echo file' >`+out)
		s.awaits("asking")
		s.types("it\r")
		if code := s.ends().code; code != 0 {
			l.t.Errorf("ended with %d", code)
		}
		if got := l.read(out); got != "got it\nfile\n" {
			l.t.Errorf("got %q", got)
		}
	})
}

func TestATerminalIsLeftAsItWas(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		for _, end := range []string{"exit 0", "kill -9 $$", "sleep 1000"} {
			s := l.onTerminal(80, nil, "sh", "-c", `before=$(stty -g)
	git-agency exec `+l.id+` --stdin --timeout 300ms --grace 0 -- sh -c 'stty raw -echo; `+end+`'
	test "$(stty -g)" = "$before" && echo same; `)
			s.awaits("same")
			s.ends()
		}
		if left, err := os.ReadDir(filepath.Join(l.tree, ".agency")); err != nil || len(left) != 1 {
			l.t.Errorf("there is %v, %v", left, err)
		}
	})
}
