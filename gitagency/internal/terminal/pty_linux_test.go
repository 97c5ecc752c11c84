package terminal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// testTerminal is a pseudo-terminal whose master the test reads and writes.
type testTerminal struct {
	t            *testing.T
	master       *os.File     // master side: writing is typing
	slave        *os.File     // slave side: the terminal of the programs
	initialModes unix.Termios // modes at the start

	mu            sync.Mutex
	output        bytes.Buffer  // output so far
	outputChanged chan struct{} // signals new output
}

func newTestTerminal(t *testing.T, rows, columns uint16) *testTerminal {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no pseudo terminals here: %v", err)
	}
	t.Cleanup(func() { _ = screen.Close() }) // some tests have closed it already
	p := &testTerminal{t: t, master: screen, outputChanged: make(chan struct{}, 1)}
	p.resize(rows, columns)
	must(t, withFD(screen, func(fd int) error {
		number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
		if err != nil {
			return err
		}
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		name := "/dev/pts/" + strconv.FormatUint(uint64(number), 10)
		desk, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		p.slave = os.NewFile(uintptr(desk), name)
		return err
	}))
	t.Cleanup(func() { _ = p.slave.Close() })
	p.initialModes = p.modes()
	p.initialModes.Cc[unix.VERASE] = 8 // differs from the default of a new terminal
	p.setModes(p.initialModes)
	go p.readOutput()
	return p
}

func (p *testTerminal) modes() (modes unix.Termios) {
	p.t.Helper()
	must(p.t, withFD(p.master, func(fd int) error {
		m, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			modes = *m
		}
		return err
	}))
	return modes
}

func (p *testTerminal) setModes(modes unix.Termios) {
	p.t.Helper()
	must(p.t, withFD(p.master, func(fd int) error { return unix.IoctlSetTermios(fd, unix.TCSETS, &modes) }))
}

func (p *testTerminal) resize(rows, columns uint16) {
	p.t.Helper()
	size := unix.Winsize{Row: rows, Col: columns}
	must(p.t, withFD(p.master, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &size) }))
}

func (p *testTerminal) typeKeys(keys string) {
	p.t.Helper()
	_, err := p.master.WriteString(keys)
	must(p.t, err)
}

func (p *testTerminal) readOutput() {
	buffer := make([]byte, 1<<16)
	for {
		n, err := p.master.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.output.Write(buffer[:n])
		p.mu.Unlock()
		select {
		case p.outputChanged <- struct{}{}:
		default:
		}
	}
}

func (p *testTerminal) screenText() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// waitFor waits until the output contains a text.
func (p *testTerminal) waitFor(text string) {
	p.t.Helper()
	for deadline := time.After(2 * time.Minute); !strings.Contains(p.screenText(), text); {
		select {
		case <-p.outputChanged:
		case <-deadline:
			p.t.Fatalf("%q does not appear:\n%q", text, p.screenText())
		}
	}
}

// waitUntil polls a condition for at most 30 seconds.
func waitUntil(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("timeout")
		}
	}
}

// readInput reads typed input that no program has read yet.
func (p *testTerminal) readInput() string {
	p.t.Helper()
	ready := []unix.PollFd{{Fd: int32(p.slave.Fd()), Events: unix.POLLIN}}
	if n, err := unix.Poll(ready, 10_000); n != 1 {
		p.t.Fatalf("no input: %v", err)
	}
	buffer := make([]byte, 4096)
	n, err := p.slave.Read(buffer)
	must(p.t, err)
	return string(buffer[:n])
}

func (p *testTerminal) requireRestored() {
	p.t.Helper()
	if now := p.modes(); now != p.initialModes {
		p.t.Errorf("the terminal was %+v and is %+v", p.initialModes, now)
	}
}

// helperArg makes the test binary run as the terminal helper, see runTerminalHelper.
const helperArg = "tool-at-a-terminal"

// runHelper starts the terminal helper on this terminal; the helper runs argv on a terminal of its own.
func (p *testTerminal) runHelper(argv ...string) *exec.Cmd {
	p.t.Helper()
	self, err := os.Executable()
	must(p.t, err)
	return p.startSession(append([]string{self, helperArg}, argv...)...)
}

// startSession starts a program as leader of a session with this controlling terminal.
func (p *testTerminal) startSession(argv ...string) *exec.Cmd {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.slave, p.slave, p.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(p.t, cmd.Start())
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// requireExit waits for a helper and checks the exit code of its program and the modes of the terminal.
func (p *testTerminal) requireExit(tool *exec.Cmd, code int) {
	p.t.Helper()
	p.waitFor("ended ")
	must(p.t, tool.Wait())
	p.waitFor(fmt.Sprintf("ended %d\r\n", code))
	p.requireRestored()
}

func init() { // before the tests: this process runs none
	if len(os.Args) > 2 && os.Args[1] == helperArg {
		os.Exit(runTerminalHelper(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == attachArg {
		os.Exit(runAttachHelper(os.Args[2]))
	}
}

// runTerminalHelper runs a program on a new terminal connected to standard input and output, and prints its exit code.
func runTerminalHelper(argv []string) int {
	pty, err := Open(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Println("refused:", errors.Is(err, ErrBackground), err)
		return 1
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	err = startOnTerminal(pty, cmd)
	if err == nil {
		pty.StartInput()
		_ = cmd.Wait() // the exit code is reported below
	}
	err = errors.Join(err, pty.Close(), pty.Close())
	if err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	fmt.Println("ended", exitCode(cmd.ProcessState))
	return 0
}

func startOnTerminal(pty *PTY, cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pty.Slave, pty.Slave, pty.Slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return cmd.Start()
}

// openPTY opens a PTY in the test process, which is not in this terminal's session.
func (p *testTerminal) openPTY(out io.Writer) *PTY {
	p.t.Helper()
	pty, err := Open(p.slave, out)
	must(p.t, err)
	p.t.Cleanup(func() { _ = pty.Close() }) // fails in tests of hang-ups
	return pty
}

// runOnTerminal starts a program on pty.
func (p *testTerminal) runOnTerminal(pty *PTY, argv ...string) *exec.Cmd {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), argv[0], argv[1:]...)
	must(p.t, startOnTerminal(pty, cmd))
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func TestPTYCopiesSizeAndModes(t *testing.T) {
	t.Parallel()
	p := newTestTerminal(t, 33, 77)
	stty := exec.CommandContext(t.Context(), "stty", "-g")
	stty.Stdin = p.slave
	modes, err := stty.Output()
	must(t, err)
	tool := p.runHelper("sh", "-c", `test -t 0 && test -t 1 && test -t 2 && tty && stty size && stty -g && echo mine >/dev/tty`)
	p.requireExit(tool, 0)
	lines := strings.Split(p.screenText(), "\r\n")
	if len(lines) != 6 || !strings.HasPrefix(lines[0], "/dev/pts/") || lines[0] == p.slave.Name() ||
		lines[1] != "33 77" || lines[2]+"\n" != string(modes) || lines[3] != "mine" {
		t.Errorf("on %s with %q: %q", p.slave.Name(), modes, lines)
	}
}

func TestPTYPropagatesResize(t *testing.T) {
	t.Parallel()
	p := newTestTerminal(t, 24, 80)
	tool := p.runHelper("sh", "-c", `sleep 600 & trap 'stty size; kill $!; exit 4' WINCH; echo ready; wait`)
	p.waitFor("ready")
	p.resize(50, 132)
	p.waitFor("50 132")
	p.requireExit(tool, 4)
}

func TestPTYCtrlCReachesOnlyProgram(t *testing.T) {
	t.Parallel()
	p := newTestTerminal(t, 24, 80)
	tool := p.runHelper("sh", "-c", "echo ready; exec sleep 600")
	p.waitFor("ready")
	p.typeKeys("\x03")
	p.requireExit(tool, 130)
}

func TestPTYShellHasJobControl(t *testing.T) {
	t.Parallel()
	p := newTestTerminal(t, 24, 80)
	tool := p.runHelper("env", "-i", "PATH="+os.Getenv("PATH"), "PS1=what? ", "sh", "-i")
	p.waitFor("what? ")
	p.typeKeys("sh -c 'echo u\"\"p; exec sleep 600'\r")
	p.waitFor("up\r\n")
	p.typeKeys("\x1a")
	p.waitFor("Stopped")
	p.typeKeys("kill -KILL %1; fg; exit 7\r")
	p.requireExit(tool, 7)
	if seen := p.screenText(); strings.Contains(seen, "job control") {
		t.Errorf("%q", seen)
	}
}

func TestPTYRelaysAllOutput(t *testing.T) {
	t.Parallel()
	p := newTestTerminal(t, 24, 80)
	p.requireExit(p.runHelper("seq", "150000"), 0)
	var want strings.Builder
	for i := 1; i <= 150000; i++ {
		fmt.Fprintf(&want, "%d\r\n", i)
	}
	want.WriteString("ended 0\r\n")
	if got := p.screenText(); got != want.String() {
		t.Errorf("want %d bytes, got %d, ending in %q", want.Len(), len(got), got[max(0, len(got)-100):])
	}
}

func TestPTYRelaysAllInput(t *testing.T) {
	t.Parallel()
	p := newTestTerminal(t, 24, 80)
	file := filepath.Join(t.TempDir(), "typed")
	var text strings.Builder // every byte, including control characters
	for i := range 300_000 {
		text.WriteByte(byte(i + i>>8))
	}
	tool := p.runHelper("sh", "-c", `stty raw -echo; echo ready; head -c "$1" >"$2"`, "sh", strconv.Itoa(text.Len()), file)
	p.waitFor("ready")
	p.typeKeys(text.String())
	p.requireExit(tool, 0)
	got, err := os.ReadFile(file)
	must(t, err)
	if string(got) != text.String() {
		t.Errorf("sent %d bytes, got %d, or other content", text.Len(), len(got))
	}
}

func TestPTYLeavesTypeAhead(t *testing.T) {
	t.Parallel()
	for name, relay := range map[string]bool{"before StartInput": false, "after Close": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newTestTerminal(t, 24, 80)
			pty := p.openPTY(io.Discard)
			if relay {
				pty.StartInput()
				must(t, p.runOnTerminal(pty, "true").Wait())
				must(t, pty.Close())
			}
			p.typeKeys("ls\n")
			must(t, pty.Close())
			must(t, pty.Close())
			if got := p.readInput(); got != "ls\n" {
				t.Errorf("found %q", got)
			}
			p.requireRestored()
		})
	}
}

func TestPTYCloseStopsReadingInput(t *testing.T) {
	t.Parallel()
	p := newTestTerminal(t, 24, 80)
	pty := p.openPTY(io.Discard)
	pty.StartInput()
	must(t, p.runOnTerminal(pty, "true").Wait())
	must(t, pty.Close())
	select {
	case <-pty.inputDone:
	default:
		t.Error("terminal input is still read")
	}
}

func TestPTYKeepsInputBlocking(t *testing.T) {
	t.Parallel()
	p := newTestTerminal(t, 24, 80)
	pty := p.openPTY(io.Discard)
	pty.StartInput()
	flags, err := unix.FcntlInt(p.slave.Fd(), unix.F_GETFL, 0)
	must(t, err)
	if flags&unix.O_NONBLOCK != 0 {
		t.Error("the shared open file description is non-blocking")
	}
	must(t, pty.Close())
}

func TestOpenRefusesBackground(t *testing.T) {
	t.Parallel()
	p := newTestTerminal(t, 24, 80)
	self, err := os.Executable()
	must(t, err)
	shell := p.startSession("sh", "-c", `set -m; "$@" & wait; echo done`, "sh", self, helperArg, "true")
	p.waitFor("done\r\n")
	must(t, shell.Wait())
	if got := p.screenText(); !strings.Contains(got, "refused: true ") || !strings.Contains(got, ErrBackground.Error()) {
		t.Errorf("%q", got)
	}
	p.requireRestored()
}

func TestOpenRefusesNonTerminal(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	must(t, err)
	defer null.Close()
	if _, err := Open(null, io.Discard); !errors.Is(err, unix.ENOTTY) || !strings.Contains(err.Error(), os.DevNull) {
		t.Errorf("got %v", err)
	}
}

// TestPTYIsRawAgainAfterSIGCONT restores the modes while the helper is stopped, as a shell does.
func TestPTYIsRawAgainAfterSIGCONT(t *testing.T) {
	t.Parallel()
	p := newTestTerminal(t, 24, 80)
	tool := p.runHelper("sh", "-c", "echo ready; exec sleep 600")
	p.waitFor("ready")
	raw := p.modes()
	must(t, tool.Process.Signal(unix.SIGSTOP))
	must(t, unix.Waitid(unix.P_PID, tool.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil))
	p.setModes(p.initialModes)
	p.resize(10, 40)
	must(t, tool.Process.Signal(unix.SIGCONT))
	waitUntil(t, func() bool { return p.modes() == raw })
	p.typeKeys("\x03")
	p.requireExit(tool, 130)
}

func TestPTYStopAndForeground(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	self, err := os.Executable()
	must(t, err)
	p := newTestTerminal(t, 24, 80)
	shell := p.startSession("env", "-i", "PATH="+os.Getenv("PATH"), "PS1=what? ", bash, "--norc", "--noprofile", "--noediting", "-i")
	p.waitFor("what? ")
	p.typeKeys(self + " " + helperArg + " sh -c 'echo \"tool=$PPID.\"; exec cat'\r")
	p.waitFor(".\r\n")
	_, after, _ := strings.Cut(p.screenText(), "\ntool=")
	number, _, _ := strings.Cut(after, ".")
	pid, err := strconv.Atoi(number)
	must(t, err)
	must(t, unix.Kill(pid, unix.SIGTSTP))
	p.waitFor("Stopped")
	p.typeKeys("echo bet\"\"ween\r")
	p.waitFor("between\r\n")
	p.typeKeys("bg\r") // in the background the helper leaves the keys and the modes to the shell
	waitUntil(t, func() bool { p.typeKeys("jobs -l\r"); return strings.Contains(p.screenText(), "Running") })
	p.typeKeys("echo sti\"\"ll\r")
	p.waitFor("still\r\n")
	raw := func() bool { return p.modes().Lflag&(unix.ISIG|unix.ICANON) == 0 }
	p.typeKeys("fg\r")
	waitUntil(t, raw)
	p.typeKeys("\x03")
	p.waitFor("ended 130\r\n")
	p.typeKeys("exit 5\r")
	_ = shell.Wait()
	if exitCode(shell.ProcessState) != 5 {
		t.Errorf("the shell ended with %v:\n%q", shell.ProcessState, p.screenText())
	}
	p.requireRestored()
}

func TestProgramMayReopenItsTerminal(t *testing.T) {
	t.Parallel()
	for name, alone := range map[string]bool{"slave open in the parent": false, "slave closed in the parent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newTestTerminal(t, 24, 80)
			pty := p.openPTY(p.slave)
			closed := filepath.Join(t.TempDir(), "closed")
			cmd := p.runOnTerminal(pty, "sh", "-c", `echo one; trap 'exec >/dev/tty </dev/tty; echo two; read line; exit 3' USR1
				exec >"$1.new" 2>&1 <&-; mv "$1.new" "$1"; while :; do sleep 0.01; done`, "sh", closed)
			if alone {
				must(t, pty.Slave.Close())
			}
			pty.StartInput()
			waitUntil(t, func() bool { _, err := os.Stat(closed); return err == nil })
			must(t, cmd.Process.Signal(unix.SIGUSR1))
			p.waitFor("two\r\n")
			p.typeKeys("\r")
			if err := cmd.Wait(); exitCode(cmd.ProcessState) != 3 {
				t.Error(err)
			}
			must(t, pty.Close())
			p.waitFor("one\r\ntwo\r\n\r\n") // the last line is the echo of the key
			p.requireRestored()
		})
	}
}

func TestPTYHangUpReachesProgram(t *testing.T) {
	t.Parallel()
	p := newTestTerminal(t, 24, 80)
	pty := p.openPTY(io.Discard)
	cmd := p.runOnTerminal(pty, "sleep", "600")
	pty.StartInput()
	must(t, p.master.Close())
	select {
	case <-pty.inputDone:
	case <-time.After(2 * time.Minute):
		t.Fatal("terminal input is still read")
	}
	if err := pty.Close(); !errors.Is(err, unix.EIO) {
		t.Errorf("Close after a hang-up: %v", err)
	}
	_ = cmd.Wait()
	if code := exitCode(cmd.ProcessState); code != 128+int(unix.SIGHUP) {
		t.Errorf("the program ended with %d", code)
	}
}

func TestPTYCloseDespiteEndlessOutput(t *testing.T) {
	t.Parallel()
	p := newTestTerminal(t, 24, 80)
	writes := make(chan struct{}, 1)
	pty := p.openPTY(writerFunc(func(p []byte) (int, error) {
		select {
		case writes <- struct{}{}:
		default:
		}
		return len(p), nil
	}))
	cmd := p.runOnTerminal(pty, "yes")
	pty.StartInput()
	<-writes
	must(t, pty.Close())
	p.requireRestored()
	_ = cmd.Wait()
	if code := exitCode(cmd.ProcessState); code != 128+int(unix.SIGHUP) {
		t.Errorf("the program ended with %d", code)
	}
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

func TestPTYOutputErrorDoesNotBlockProgram(t *testing.T) {
	t.Parallel()
	p := newTestTerminal(t, 24, 80)
	full := errors.New("the screen is full")
	pty := p.openPTY(writerFunc(func([]byte) (int, error) { return 0, full }))
	must(t, p.runOnTerminal(pty, "seq", "100000").Wait())
	if err := pty.Close(); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	p.requireRestored()
}

func TestPTYCloseTimesOutOnBlockedOutput(t *testing.T) {
	t.Parallel()
	p := newTestTerminal(t, 24, 80)
	forever := make(chan struct{})
	defer close(forever)
	pty := p.openPTY(writerFunc(func(p []byte) (int, error) { <-forever; return len(p), nil }))
	pty.outputTimeout = 10 * time.Millisecond
	must(t, p.runOnTerminal(pty, "echo", "hello").Wait())
	if err := pty.Close(); err == nil || !strings.Contains(err.Error(), "output was lost") {
		t.Errorf("got %v", err)
	}
	p.requireRestored()
}

// openOutput opens a PTY for output alone.
func (p *testTerminal) openOutput(ctx context.Context) *PTY {
	p.t.Helper()
	pty, err := OpenOutput(ctx, p.slave)
	must(p.t, err)
	p.t.Cleanup(func() { _ = pty.Close() }) // fails in tests of lost output
	return pty
}

func TestOutputPTYProcessesOutputOnce(t *testing.T) {
	t.Parallel()
	p := newTestTerminal(t, 33, 77)
	pty := p.openOutput(t.Context())
	_, err := pty.Slave.WriteString("one\ntwo\ttabs\r\n\x1b[31mred")
	must(t, errors.Join(err, pty.Close(), pty.Close()))
	p.waitFor("one\r\ntwo\ttabs\r\r\n\x1b[31mred") // as a program on the user's terminal would write it
	p.requireRestored()
}

func TestOutputPTYCannotBeRead(t *testing.T) {
	t.Parallel()
	p := newTestTerminal(t, 33, 77)
	pty := p.openOutput(t.Context())
	p.typeKeys("keys\n")
	if _, err := pty.Slave.Read(make([]byte, 1)); !errors.Is(err, unix.EBADF) {
		t.Errorf("read: %v", err)
	}
	must(t, withFD(pty.Slave, func(fd int) error {
		_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		size, sizeErr := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if sizeErr == nil && (size.Row != 33 || size.Col != 77) {
			t.Errorf("the size is %v", *size)
		}
		return errors.Join(err, sizeErr, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 1, Col: 1}))
	}))
	must(t, pty.Close())
	if keys := p.readInput(); keys != "keys\n" {
		t.Errorf("the user's terminal has the keys %q", keys)
	}
	must(t, withFD(p.slave, func(fd int) error {
		size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err == nil && (size.Row != 33 || size.Col != 77) {
			t.Errorf("the user's terminal has the size %v", *size)
		}
		return err
	}))
	p.requireRestored()
}

// TestOutputPTYWaitsForStoppedOutput stops the output with Ctrl-S: Close waits for Ctrl-Q, but not after ctx has
// ended.
func TestOutputPTYWaitsForStoppedOutput(t *testing.T) {
	t.Parallel()
	for name, canceled := range map[string]bool{"until Ctrl-Q": false, "not after the end of ctx": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newTestTerminal(t, 33, 77)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			pty := p.openOutput(ctx)
			pty.outputTimeout = 10 * time.Millisecond
			p.typeKeys("\x13")
			_, err := pty.Slave.WriteString("the end")
			must(t, err)
			closed := make(chan error, 1)
			go func() { closed <- pty.Close() }()
			if canceled {
				cancel()
				if err := <-closed; err == nil {
					t.Error("no output was lost")
				}
				p.typeKeys("\x11") // ends the blocked write
				return
			}
			select {
			case err := <-closed:
				t.Errorf("Close did not wait: %v", err)
			case <-time.After(10 * pty.outputTimeout):
			}
			p.typeKeys("\x11")
			must(t, <-closed)
			p.waitFor("the end")
		})
	}
}
