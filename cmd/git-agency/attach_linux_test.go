package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// attachLab runs detached agents, behind walls or without them.
type attachLab struct {
	*lab
	isolation string
}

func withAttachLabs(t *testing.T, test func(l *attachLab)) {
	t.Helper()
	for _, isolation := range []string{"os", "none"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			test(newAttachLab(t, isolation))
		})
	}
}

func newAttachLab(t *testing.T, isolation string) *attachLab {
	t.Helper()
	l := &attachLab{newLab(t), isolation}
	l.agency("worktree", "create", "wt")
	return l
}

// detach starts a shell script on a kept terminal.
func (l *attachLab) detach(script string) (id string) {
	l.t.Helper()
	id = l.agency("run", "wt", "--isolation", l.isolation, "--detach", "--tty", "--", "bash", "-c", script)
	l.stopAtEnd(id)
	return id
}

// stopAtEnd stops a run at the end of the test.
func (l *attachLab) stopAtEnd(id string) {
	l.t.Cleanup(func() {
		cmd := exec.Command(filepath.Join(l.bin, "git-agency"), "stop", id)
		cmd.Dir, cmd.Env = l.repo, l.env
		if out, err := cmd.CombinedOutput(); err != nil {
			l.t.Errorf("stop: %v: %s", err, out)
		}
	})
}

// readLines is the main loop of an agent that prints the lines that it reads and each new size of its terminal, and exits
// with 5 after the line "end".
const readLines = `while :; do
	size=$(stty size); test "$size" = "$last" || echo "size $size"; last=$size
	read -r -t 0.05 part; code=$?; line=$line$part # a read that times out may have read some of a line
	test $code = 0 || continue
	echo "read $line"; test "$line" != end || exit 5
	line=
done`

func (l *attachLab) attach(id string, flags ...string) *terminalSession {
	l.t.Helper()
	return l.startOnTerminal(91, nil, append([]string{"git-agency", "attach", id}, flags...)...)
}

// detachKeys detaches a terminal, and checks that the command has ended.
func (l *attachLab) detachKeys(s *terminalSession) {
	l.t.Helper()
	s.typeKeys("\x10\x11")
	s.waitForText("the run goes on")
	if code := s.wait().code; code != 0 {
		l.t.Errorf("detached with %d", code)
	}
}

// TestAttach detaches from an agent and attaches again: the terminal shows the last screen, and gets its modes back.
func TestAttach(t *testing.T) {
	t.Parallel()
	withAttachLabs(t, func(l *attachLab) {
		id := l.detach(`test -t 0 && test -t 1 && test -t 2 && : </dev/tty && echo four; printf '\033[?2004h'; ` + readLines)
		s := l.attach(id)
		s.waitForText("four")
		s.waitForText("size 24 91")
		s.typeKeys("words\r")
		s.waitForText("read words")
		if err := unix.IoctlSetWinsize(int(s.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 101}); err != nil {
			l.t.Fatal(err)
		}
		s.waitForText("size 33 101")
		l.detachKeys(s)
		if !strings.Contains(s.text(), "\x1b[?2004l") || !strings.Contains(s.text(), "git agency attach "+id) {
			l.t.Errorf("got %q", s.text())
		}

		s = l.attach(id, "--detach-keys", "ctrl-a,d")
		s.waitForText("read words")
		s.typeKeys("\x10\x11\rtyped last\r\x01d") // Ctrl-Q means something to the agent's terminal
		s.waitForText("the run goes on")
		s.wait()

		s = l.startOnTerminal(80, nil, "sh", "-c", `before=$(stty -g); git agency attach `+id+`; echo "code $?"; test "$(stty -g)" = "$before" && echo same`)
		s.waitForText("read \x10")
		s.waitForText("read typed last")
		s.typeKeys("end\r")
		s.waitForText("code 5")
		s.waitForText("same")
		s.waitForText("failed: it exited with 5")
		s.wait()
		if got := l.try(nil, "git-agency", "attach", id); got.code != 1 || !strings.Contains(got.stderr, "has ended: failed") || !strings.Contains(got.stderr, "git agency resume "+id) {
			l.t.Errorf("attached to a run that has ended: %+v", got)
		}
		if got := l.agency("logs", id); !strings.Contains(got, "read words") {
			l.t.Errorf("the log has %q", got)
		}
	})
}

// TestAttachedClientsComeAndGo checks that two terminals share an agent, and that it survives whatever happens to them.
func TestAttachedClientsComeAndGo(t *testing.T) {
	t.Parallel()
	withAttachLabs(t, func(l *attachLab) {
		id := l.detach(`echo ready; trap '' HUP; while read line; do echo "read $line"; test "$line" != end || exit 0; done; echo "no input"`)
		first, second := l.attach(id), l.attach(id)
		first.waitForText("ready")
		second.waitForText("ready")
		first.typeKeys("one\r")
		second.waitForText("read one")
		second.typeKeys("two\r")
		first.waitForText("read two")
		if err := first.cmd.Process.Kill(); err != nil {
			l.t.Fatal(err)
		}
		first.wait()
		second.typeKeys("three\r")
		second.waitForText("read three")
		if err := second.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			l.t.Fatal(err)
		}
		second.wait()
		hungUp := l.attach(id)
		hungUp.waitForText("read three")
		if err := hungUp.master.Close(); err != nil {
			l.t.Fatal(err)
		}
		last := l.attach(id)
		last.waitForText("read three")
		last.typeKeys("four\r") // makes the read of the master return, which has kept it open
		_ = hungUp.cmd.Wait()
		stopped := l.attach(id)
		stopped.waitForText("read three")
		if err := stopped.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			l.t.Fatal(err)
		}
		last.typeKeys("end\r")
		last.waitForText(id + " finished")
		if code := last.wait().code; code != 0 || strings.Contains(last.text(), "no input") {
			l.t.Errorf("ended with %d: %s", code, last.text())
		}
		_ = stopped.cmd.Process.Kill()
		stopped.wait()
	})
}

// TestAttachJobControl checks that Ctrl-C and Ctrl-Z are keys for the agent, and that one that stops itself goes on at once:
// no shell could continue it.
func TestAttachJobControl(t *testing.T) {
	t.Parallel()
	withAttachLabs(t, func(l *attachLab) {
		id := l.detach(`trap 'echo interrupted' INT; trap 'echo continued $((++count))' CONT; echo ready; kill -STOP $$; echo after; ` + readLines)
		s := l.attach(id)
		s.waitForText("after")
		s.waitForText("continued 1")
		s.typeUntil("\x03", "interrupted")
		s.typeUntil("\x1a", "continued 2")
		s.typeKeys("end\r")
		if code := s.wait().code; code != 5 {
			l.t.Errorf("ended with %d", code)
		}
	})
}

// TestAttachToRunner checks that an agent that is started without a task and detached is interactive, and that it is again
// after a resume, in the same session, unless it gets a task.
func TestAttachToRunner(t *testing.T) {
	t.Parallel()
	l := newAttachLab(t, "os")
	l.git("config", "--global", "agency.mine.command", `test -t 0 && echo "on $TERM in $AGENCY_SESSION_ID" || echo headless; read line; test "$line" != end`)
	id := l.agency("run", "wt", "--runner", "mine", "--detach")
	l.stopAtEnd(id)
	session := ""
	for range 2 {
		s := l.startOnTerminal(80, []string{"TERM=xterm"}, "git", "agency", "attach", id)
		s.waitForText("on xterm-256color in ") // the test has no TERM
		s.typeKeys("end\r")
		if got := s.wait(); got.code != 1 || !strings.Contains(got.stdout, session) {
			t.Errorf("got %+v, want the session %s", got, session)
		} else {
			_, session, _ = strings.Cut(got.stdout, " in ")
			session, _, _ = strings.Cut(session, "\r")
		}
		l.agency("resume", id, "--detach")
	}
	l.agency("stop", id)
	l.agency("resume", id, "--detach", "-p", "end")
	if got := l.try(nil, "git-agency", "wait", id); got.code != 1 {
		t.Errorf("got %+v", got)
	}
	if got := l.agency("logs", id); !strings.HasSuffix(got, "headless") {
		t.Errorf("the log is %q", got)
	}
}

// TestAttachFollowsAgentWithoutTerminal checks that the output of a headless agent is followed, without escape
// sequences, and that the detach keys and Ctrl-C leave it running.
func TestAttachFollowsAgentWithoutTerminal(t *testing.T) {
	t.Parallel()
	l := newAttachLab(t, "os")
	id := l.agency("run", "wt", "--detach", "-p", "task", "--", "sh", "-c", `printf 'be\033[31mgun\n'; until test -e go; do sleep 0.02; done; exit 4`)
	l.stopAtEnd(id)
	for _, keys := range []string{"x\x10\x11", "\x03"} {
		s := l.startOnTerminal(80, nil, "sh", "-c", `trap : INT; before=$(stty -g); git-agency attach `+id+`; echo "code $?"; test "$(stty -g)" = "$before" && echo same`)
		s.waitForText("begun")
		s.typeKeys(keys)
		s.waitForText("the run goes on")
		s.waitForText("code 0")
		s.waitForText("same")
		s.wait()
	}
	s := l.attach(id)
	s.waitForText("begun")
	l.write(filepath.Join(l.agency("path", id), "go"), "")
	s.waitForText("failed: it exited with 4")
	if code := s.wait().code; code != 4 {
		t.Errorf("ended with %d", code)
	}
}

// TestAttachRefusesForegroundRun checks that an agent on the terminal that it was started on is not attached to.
func TestAttachRefusesForegroundRun(t *testing.T) {
	t.Parallel()
	l := newAttachLab(t, "os")
	s := l.startOnTerminal(80, nil, "git-agency", "run", "wt", "--tty", "--", "sh", "-c", `echo begun; read line`)
	s.waitForText("begun")
	id := l.agency("ls", "--format", "%(invocation_id)")
	if got := l.try(nil, "git-agency", "attach", id); got.code != 1 || !strings.Contains(got.stderr, "in the foreground of another terminal") {
		t.Errorf("got %+v", got)
	}
	s.typeKeys("\r")
	s.wait()
}

// TestAttachSocketIsHiddenBehindWalls checks that commands in the sandbox cannot connect to the socket of their agent.
func TestAttachSocketIsHiddenBehindWalls(t *testing.T) {
	t.Parallel()
	l := newAttachLab(t, "os")
	id := l.detach(`echo ready; read line`)
	sockets, err := filepath.Glob(filepath.Join(l.data, "repos", "*", "invocations", id, "terminal.sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("found %q: %v", sockets, err)
	}
	for path, mode := range map[string]os.FileMode{sockets[0]: 0o600, filepath.Dir(sockets[0]): 0o700} {
		fi, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode().Perm() != mode {
			t.Errorf("%s has the mode %v", path, fi.Mode())
		}
	}
	if got := l.try(nil, "git-agency", "exec", id, "--", "test", "-e", sockets[0]); got.code != 1 {
		t.Errorf("inside, the socket is seen: %+v", got)
	}
}

// TestAttachSurvivesKilledSupervisor checks that the end of the supervisor ends the client, which says so.
func TestAttachSurvivesKilledSupervisor(t *testing.T) {
	t.Parallel()
	l := newAttachLab(t, "os")
	id := l.detach(`echo ready; read line`)
	s := l.attach(id)
	s.waitForText("ready")
	var listed []struct{ PID int }
	if err := json.Unmarshal([]byte(l.agency("ls", "--json")), &listed); err != nil || len(listed) != 1 || listed[0].PID == 0 {
		t.Fatalf("no supervisor is listed: %v", err)
	}
	if err := syscall.Kill(listed[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := s.wait(); got.code != 1 || !strings.Contains(got.stdout, id+" failed") {
		t.Errorf("got %+v", got)
	}
	if got := l.try(nil, "git-agency", "attach", id); got.code != 1 || !strings.Contains(got.stderr, "has ended: failed") {
		t.Errorf("got %+v", got)
	}
}
