package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// newWalledLab returns a lab with a sandbox behind walls, alone or beside a second command, and the escapist command.
func newWalledLab(t *testing.T, name string) *execLab {
	t.Helper()
	l := newExecLab(t, containments[name])
	l.copyEscapist()
	return l
}

// withoutInput is a shell script that runs its arguments with an empty standard input, so that exec is not interactive.
const withoutInput = `exec "$@" </dev/null`

// TestExecKeepsUserTerminalFromCommand runs a command that is not interactive, behind walls and without them. It reads
// the keys, inserts input, and changes the modes and the size of every terminal that it has or can open. Its streams are
// terminals where those of the tool are, and the terminal of the user stays as it was: the shell reads the keys.
func TestExecKeepsUserTerminalFromCommand(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		name      string
		command   string // "RUN" is replaced by the exec
		terminals string // streams of the command that are terminals
	}{
		{"stdout and stderr", "RUN </dev/null", "1 2"},
		{"stdout", "RUN </dev/null 2>/dev/null", "1"},
		{"stderr", "{ RUN | cat >out; cat out; }", "2"},
		{"none", "{ RUN 2>&1 | cat >out; cat out; }", ""},
		{"stdout of a pipe", "echo x | STDIN", "1 2"},
		{"stdin is closed", "RUN <&-", "1 2"},
		{"stdout opened by /dev/tty", "RUN </dev/null >/dev/tty", "1 2"},
		{"more descriptors", "RUN 3<>/dev/tty 4>&1 5<&0 9>&2 </dev/null", "1 2"},
		{"a second terminal for stderr", "RUN </dev/null 2>$OTHER", "1 2"},
	} {
		for n, walls := range []string{"walls", "shared-walls", "pid-namespace"} {
			if testing.Short() && n != i%3 {
				continue // with -short, each redirection has one kind of walls
			}
			t.Run(c.name+" "+walls, func(t *testing.T) {
				t.Parallel()
				l := newWalledLab(t, walls)
				otherMaster, other := openPTY(t, 24, 80)
				defer otherMaster.Close()
				defer other.Close()
				run := "git-agency exec " + l.id + " -- escapist seize"
				script := strings.NewReplacer("RUN", run, "STDIN", strings.Replace(run, " -- ", " --stdin -- ", 1)).Replace(c.command)
				s := l.startOnTerminal(80, []string{"OTHER=" + other.Name()}, "sh", "-c", `
	before=$(stty -g; stty size; stty -g <$OTHER; stty size <$OTHER); echo ready; read first
	`+script+`
	if test "$(stty -g; stty size; stty -g <$OTHER; stty size <$OTHER)" = "$before"; then echo terminal unchanged; else echo terminal changed; fi
	stty "$(echo "$before" | head -n 1)" # so that the next line ends when it should
	read line; echo "shell read $line"`)
				s.waitForText("ready")
				s.typeKeys("first\rsecret\r")
				s.waitForText("terminal ")
				s.typeKeys("after\r")
				got := s.wait().stdout
				if !strings.Contains(got, "terminals: "+c.terminals+"\n") || !strings.Contains(got, "terminal unchanged\n") ||
					!strings.Contains(got, "shell read secret\n") || strings.Contains(got, "seized") {
					t.Errorf("want terminals %q, unchanged, and the key left for the shell; got %q", c.terminals, got)
				}
			})
		}
	}
}

func TestExecKeepsUserTerminalFromCommandUnprivileged(t *testing.T) {
	rerunUnprivileged(t, "TestExecKeepsUserTerminalFromCommand")
}

// TestExecOutputReachesTerminalUnchanged checks that a terminal gets every byte that a command writes, in order, also
// when stdout and stderr take turns, and that a redirected stream stays apart.
func TestExecOutputReachesTerminalUnchanged(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		const script = `i=0; while [ $i -lt 2000 ]; do i=$((i+1)); printf 'out %s\tof\r\nit \033[31m' $i; printf 'err %s\n' $i >&2; done`
		var both, stdout strings.Builder
		for i := range 2000 {
			n := strconv.Itoa(i + 1)
			both.WriteString("out " + n + "\tof\r\nit \x1b[31merr " + n + "\n")
			stdout.WriteString("out " + n + "\tof\r\nit \x1b[31m")
		}
		if got := l.startOnTerminal(80, nil, "sh", "-c", withoutInput, "sh", "git-agency", "exec", l.id, "--", "sh", "-c", script).wait(); got.code != 0 || got.stdout != both.String() {
			l.t.Errorf("ended with %d and %d bytes, want %d", got.code, len(got.stdout), both.Len())
		}
		errors := filepath.Join(l.dir, "errors")
		got := l.startOnTerminal(80, nil, "sh", "-c", `git-agency exec "$1" -- sh -c "$2" </dev/null 2>"$3"`, "sh", l.id, script, errors).wait()
		if got.code != 0 || got.stdout != stdout.String() || strings.Count(l.read(errors), "\n") != 2000 || strings.Contains(l.read(errors), "out") {
			l.t.Errorf("ended with %d and %d bytes, want %d", got.code, len(got.stdout), stdout.Len())
		}
	})
}

// TestExecOutputTerminalFollowsSize checks that a command that is not interactive sees the size of the user's terminal, and its
// changes.
func TestExecOutputTerminalFollowsSize(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		s := l.startOnTerminal(80, nil, "sh", "-c", withoutInput, "sh", "git-agency", "exec", l.id, "--", "sh", "-c", `exec 3>&1; while size=$(stty size <&3); test "$size" != "33 101"; do test "$size" = "$last" || echo "size $size"; last=$size; sleep 0.01; done; echo "size $size"`)
		s.waitForText("size 24 80")
		if err := unix.IoctlSetWinsize(int(s.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 101}); err != nil {
			l.t.Fatal(err)
		}
		s.waitForText("size 33 101")
		if code := s.wait().code; code != 0 {
			l.t.Errorf("ended with %d", code)
		}
	})
}

// TestExecOutputTerminalKeepsCtrlC checks that Ctrl-C still interrupts the tool, which ends the command.
func TestExecOutputTerminalKeepsCtrlC(t *testing.T) {
	t.Parallel()
	withAndWithoutWalls(t, func(l *execLab) {
		s := l.startOnTerminal(80, nil, "sh", "-c", withoutInput, "sh", "git-agency", "exec", l.id, "--grace", "20s", "--", "sh", "-c", `trap 'echo terminated; exit 6' TERM; echo ready; while :; do sleep 0.01; done`)
		s.waitForText("ready")
		s.typeKeys("\x03")
		s.waitForText("terminated")
		if code := s.wait().code; code != 128+int(syscall.SIGINT) {
			l.t.Errorf("ended with %d", code)
		}
	})
}

// TestCtrlCThroughGitCountsOnce presses Ctrl-C once while git runs the tool. Both get the signal of the terminal, and git
// forwards its own to the tool: the command must still have its grace.
func TestCtrlCThroughGitCountsOnce(t *testing.T) {
	t.Parallel()
	l := newExecLab(t, containments["walls"])
	for range 10 {
		s := l.startOnTerminal(80, nil, "sh", "-c", withoutInput, "sh", "git", "agency", "exec", l.id, "--grace", "1h", "--", "sh", "-c",
			`trap 'sleep 0.4; echo finished; exit' TERM; echo ready; while :; do sleep 0.01; done`)
		s.waitForText("ready")
		s.typeKeys("\x03")
		if got := s.wait(); !strings.Contains(got.stdout, "finished\n") || got.code != 128+int(syscall.SIGINT) {
			t.Fatalf("ended with %d and %q", got.code, got.stdout)
		}
	}
}

// TestExecOutputTerminalHasNoKeyboard checks that a program that asks on /dev/tty or reads its output fails at once: no
// key would ever arrive.
func TestExecOutputTerminalHasNoKeyboard(t *testing.T) {
	t.Parallel()
	l := newWalledLab(t, "walls")
	got := l.startOnTerminal(80, nil, "sh", "-c", withoutInput, "sh", "git-agency", "exec", l.id, "--timeout", "1m", "--", "sh", "-c",
		`(: </dev/tty) 2>/dev/null || echo no /dev/tty; cat <&1 2>/dev/null || echo no input; test -t 1 && echo terminal`).wait()
	if want := "no /dev/tty\nno input\nterminal\n"; got.code != 0 || got.stdout != want {
		t.Errorf("ended with %d and %q, want %q", got.code, got.stdout, want)
	}
}

// TestLandVerifyHasNoTerminal checks that the command of --verify, which runs code of the agent, gets no terminal.
func TestLandVerifyHasNoTerminal(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"walls", "pid-namespace"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			l := newWalledLab(t, isolation)
			l.must("git-agency", "exec", l.id, "--", "sh", "-c", "echo work >work; git add work; git commit -q -m work")
			s := l.startOnTerminal(80, nil, "sh", "-c", `echo ready; read first; git-agency land `+l.id+` --verify 'escapist seize'; read line; echo "shell read $line"`)
			s.waitForText("ready")
			s.typeKeys("first\rsecret\r")
			got := s.wait().stdout
			if !strings.Contains(got, "terminals: \n") || !strings.Contains(got, "shell read secret\n") || strings.Contains(got, "seized") {
				t.Errorf("want no terminals, and the key left for the shell; got %q", got)
			}
		})
	}
}
