package main

import (
	"os/exec"
	"strings"
	"testing"
)

// startJobControlShell starts an interactive bash on a terminal, with a prompt that no command prints.
func (l *execLab) startJobControlShell() *terminalSession {
	l.t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		l.t.Skip(err)
	}
	s := l.startOnTerminal(80, []string{"PS1=shell> ", "HISTFILE=", "ID=" + l.id}, "bash", "--norc", "--noprofile", "--noediting", "-i")
	s.waitForText("shell> ")
	return s
}

// TestExecSuspendsAndContinues presses Ctrl-Z in an interactive command. The shell must get the terminal back, and "fg"
// must continue the command. That holds for a program that leaves Ctrl-Z to the terminal, for one in raw mode that
// stops its process group itself, as editors and agents do, and for one that stops itself by SIGSTOP.
func TestExecSuspendsAndContinues(t *testing.T) {
	t.Parallel()
	// The programs of "raw" and "SIGSTOP" read Ctrl-Z as a key. A trap would not do: a shell that is about to wait for a key can miss a signal.
	raw := `modes=$(stty -g); stty raw -echo; echo ready; line=
			while key=$(dd bs=1 count=1 2>/dev/null); do case $key in
				"$(printf '\032')") stty "$modes"; echo suspending; STOP; stty raw -echo; echo resumed;;
				"$(printf '\r')") if test "$line" = quit; then stty "$modes"; exit 5; fi; echo "got $line"; line=;;
				*) line=$line$key;;
			esac; done`
	programs := map[string]string{
		"cooked":  `echo ready; while read line; do case $line in quit) exit 5;; *) echo "got $line";; esac; done`,
		"raw":     strings.Replace(raw, "STOP", "kill -TSTP 0", 1),
		"SIGSTOP": strings.Replace(raw, "STOP", "kill -STOP $$", 1),
	}
	for name, program := range programs {
		for _, w := range []string{"walls", "shared-walls", "pid-namespace"} {
			t.Run(name+" "+w, func(t *testing.T) {
				t.Parallel()
				l := newExecLab(t, containments[w])
				l.write(l.tree+"/program", program)
				s := l.startJobControlShell()
				s.typeKeys("git agency exec $ID -- sh program; echo ended with $?\r")
				s.waitForText("ready")
				for _, round := range []string{"one", "two"} {
					s.typeKeys(round + "\r")
					s.waitForText("got " + round)
					before := len(s.text())
					s.typeKeys("\x1a")
					s.waitForTextAfter(before, "Stopped") // the shell notices the stop of git, its child
					s.typeKeys("echo $((6*7))" + round + "; kill -0 %1 && echo alive-" + round + "\r")
					s.waitForText("42" + round)
					s.waitForText("alive-" + round)
					before = len(s.text())
					s.typeKeys("fg; echo ended again with $?\r")
					if name != "cooked" {
						s.waitForTextAfter(before, "resumed")
					}
				}
				s.typeKeys("three\r")
				s.waitForText("got three")
				s.typeKeys("quit\r")
				s.waitForText("ended again with 5")
				s.typeKeys("exit 0\r")
				if got := s.wait(); got.code != 0 {
					t.Errorf("the shell ended with %d:\n%s", got.code, got.stdout)
				}
			})
		}
	}
}

// TestExecSuspendWithoutShellGoesOn stops a command where no shell could continue the tool: the tool leads its session.
// The command must go on at once, as it would if the kernel had ignored its stop.
func TestExecSuspendWithoutShellGoesOn(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		s := l.startOnTerminal(80, nil, "git-agency", "exec", l.id, "--", "sh", "-c", `echo ready; kill -TSTP 0; echo going on; read line; echo "got $line"`)
		s.waitForText("going on")
		s.typeKeys("keys\r")
		s.waitForText("got keys")
		if got := s.wait(); got.code != 0 {
			l.t.Errorf("ended with %d: %q", got.code, got.stdout)
		}
	})
}

// TestExecStoppedTimesOut checks that a stopped command is ended after its timeout, and that the shell learns of it when
// it continues the tool.
func TestExecStoppedTimesOut(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		s := l.startJobControlShell()
		mark := l.newMark()
		s.typeKeys("git agency exec $ID --timeout 1s --grace 0 -- sh -c 'echo ready; read line; sleep " + mark + "'\r")
		s.waitForText("ready")
		s.typeKeys("\x1a")
		s.waitForText("Stopped")
		if !waitUntil(func() bool { return len(processesWithMark(l.t, mark)) <= 2 }) { // git and the tool
			l.t.Errorf("processes are left: %q", processesWithMark(l.t, mark))
		}
		s.typeKeys("fg\r")
		s.waitForText("timed out")
		s.typeKeys("echo ended with $?; exit 0\r")
		if got := s.wait(); got.code != 0 || !strings.Contains(got.stdout, "ended with 124") {
			l.t.Errorf("ended with %d: %q", got.code, got.stdout)
		}
	})
}

// TestExecStoppedIsKilled kills a stopped job: the tool and the command end without "fg", and the terminal is the
// shell's, with its modes.
func TestExecStoppedIsKilled(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		s := l.startJobControlShell()
		mark := l.newMark()
		s.typeKeys("stty tostop; before=$(stty -g); git agency exec $ID -- sh -c 'trap \"echo got TERM; exit 0\" TERM; echo ready; while :; do read line; done; sleep " + mark + "'\r")
		s.waitForText("ready")
		s.typeKeys("\x1a")
		s.waitForText("Stopped")
		s.typeKeys("kill %1; until test -z \"$(jobs)\"; do sleep 0.05; done; echo ended-$((6*7))\r")
		s.waitForText("ended-42")
		s.waitForText("got TERM")
		if !waitUntil(func() bool { return len(processesWithMark(l.t, mark)) == 0 }) {
			l.t.Errorf("processes are left: %q", processesWithMark(l.t, mark))
		}
		s.typeKeys("test \"$(stty -g)\" = \"$before\" && echo same mo''des; exit 0\r")
		if got := s.wait(); got.code != 0 || !strings.Contains(got.stdout, "same modes") {
			l.t.Errorf("ended with %d: %q", got.code, got.stdout)
		}
	})
}

// TestExecContinuesInBackground continues a stopped command with "bg". It goes on until it reads its terminal; then the
// shell is told, and "fg" gives it the keys. A running job that "fg" takes to the foreground has the keys as well: the
// shell sends no signal then.
func TestExecContinuesInBackground(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		s := l.startJobControlShell()
		l.write(l.tree+"/program", `echo ready; kill -TSTP 0; echo going on
			while ! test -e read; do sleep 0.02; done; read line; echo "got $line"
			kill -TSTP 0; touch running; while ! test -e end; do sleep 0.02; done; stty -echo; read line; stty echo; echo "again $line"`)
		s.typeKeys("git agency exec $ID -- sh program\r")
		s.waitForText("Stopped")
		s.typeKeys("bg\r")
		s.waitForText("going on")
		s.typeKeys("echo $((6*7))one; jobs\r")
		s.waitForText("42one")
		s.waitForText("Running")
		l.write(l.tree+"/read", "")
		s.typeKeys("until jobs -l | grep 'Stopped.*tty input'; do sleep 0.05; done; echo told-$((6*7))\r")
		s.waitForText("told-42")
		before := len(s.text())
		s.typeKeys("fg\r")
		s.typeKeys("keys\r")
		s.waitForText("got keys")
		s.waitForTextAfter(before, "Stopped")
		s.typeKeys("bg; until test -e " + l.tree + "/running; do sleep 0.02; done; echo $((6*7))two\r")
		s.waitForText("42two")
		s.typeKeys("fg; echo ended with $?\r")
		l.write(l.tree+"/end", "")
		s.typeKeys("more\r")
		s.waitForText("again more")
		s.waitForText("ended with 0")
		s.typeKeys("exit 0\r")
		if got := s.wait(); got.code != 0 {
			l.t.Errorf("ended with %d: %q", got.code, got.stdout)
		}
	})
}

// TestExecStopsForOutputInBackground: with tostop, output of a command in the background stops it.
func TestExecStopsForOutputInBackground(t *testing.T) {
	t.Parallel()
	l := newExecLab(t, containments["walls"])
	s := l.startJobControlShell()
	s.typeKeys("stty tostop; git agency exec $ID -- sh -c 'echo ready; kill -TSTP 0; echo output; exit 3'\r")
	s.waitForText("Stopped")
	s.typeKeys("bg; until jobs -l | grep 'Stopped.*tty output'; do sleep 0.05; done; echo told-$((6*7))\r")
	s.waitForText("told-42")
	s.typeKeys("fg; echo ended with $?\r")
	s.waitForText("ended with 3")
	s.typeKeys("exit 0\r")
	if got := s.wait(); got.code != 0 || !strings.Contains(got.stdout, "\noutput") {
		t.Errorf("ended with %d: %q", got.code, got.stdout)
	}
}

func TestExecSuspendsAndContinuesUnprivileged(t *testing.T) {
	rerunUnprivileged(t, "TestExecSuspendsAndContinues")
}
