package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminalSession is a command that runs on its own pseudo-terminal.
type terminalSession struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File

	mu      sync.Mutex
	output  strings.Builder
	updated chan struct{} // signals new output
	done    chan struct{} // closed when all output was read
}

// startOnTerminal starts a command in the repository on a pseudo-terminal with the given width that supports color.
// GIT_PAGER and NO_COLOR are removed from the environment, unless extraEnv sets them.
func (l *lab) startOnTerminal(columns int, extraEnv []string, argv ...string) *terminalSession {
	l.t.Helper()
	master, slave := openRawTerminal(l.t, columns)
	name := argv[0]
	if path := filepath.Join(l.bin, name); exists(path) {
		name = path
	}
	cmd := exec.CommandContext(l.t.Context(), name, argv[1:]...)
	cmd.Dir = l.repo
	for _, kv := range slices.Concat(l.env, []string{"PATH=" + l.bin + ":" + os.Getenv("PATH"), "TERM=xterm"}, extraEnv) {
		if n, _, _ := strings.Cut(kv, "="); !slices.Contains([]string{"NO_COLOR", "GIT_PAGER"}, n) || slices.Contains(extraEnv, kv) {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	if err := slave.Close(); err != nil {
		l.t.Fatal(err)
	}
	s := &terminalSession{t: l.t, cmd: cmd, master: master, updated: make(chan struct{}, 1), done: make(chan struct{})}
	go s.readOutput()
	return s
}

// openRawTerminal opens a pseudo-terminal without echo and output processing.
func openRawTerminal(t *testing.T, columns int) (master, slave *os.File) {
	t.Helper()
	master, slave = openPTY(t, 24, columns)
	t.Cleanup(func() { _ = master.Close() }) // a read error after the slave was closed is expected
	modes, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	modes.Oflag &^= unix.OPOST
	modes.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, modes); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// openPTY opens both ends of a new pseudo-terminal.
func openPTY(t *testing.T, rows, columns int) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals: %v", err)
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// readOutput collects the output until every process has closed the terminal.
func (s *terminalSession) readOutput() {
	defer close(s.done)
	buffer := make([]byte, 1<<16)
	for {
		n, err := s.master.Read(buffer)
		s.mu.Lock()
		s.output.Write(buffer[:n])
		s.mu.Unlock()
		select {
		case s.updated <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// text returns the output so far.
func (s *terminalSession) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.String()
}

// waitForText waits until the output contains a text.
func (s *terminalSession) waitForText(text string) { s.t.Helper(); s.typeUntil("", text) }

// waitForTextAfter waits until the output after its first bytes contains a text.
func (s *terminalSession) waitForTextAfter(first int, text string) {
	s.t.Helper()
	for deadline := time.After(2 * time.Minute); !strings.Contains(s.text()[first:], text); {
		select {
		case <-s.updated:
		case <-deadline:
			s.t.Fatalf("%q does not print %q again:\n%s", s.cmd.Args, text, s.text())
		}
	}
}

// typeUntil types keys once per second until the output contains a text: a shell that is about to wait for a key can miss
// a signal.
func (s *terminalSession) typeUntil(keys, text string) {
	s.t.Helper()
	deadline, again := time.After(2*time.Minute), time.NewTicker(time.Second)
	defer again.Stop()
	s.typeKeys(keys)
	for !strings.Contains(s.text(), text) {
		select {
		case <-s.updated:
		case <-again.C:
			s.typeKeys(keys)
		case <-s.done:
			if !strings.Contains(s.text(), text) {
				s.t.Fatalf("%q ended without %q:\n%s", s.cmd.Args, text, s.text())
			}
		case <-deadline:
			s.t.Fatalf("%q does not print %q:\n%s", s.cmd.Args, text, s.text())
		}
	}
}

func (s *terminalSession) typeKeys(keys string) {
	s.t.Helper()
	if _, err := s.master.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// wait waits for the command and returns its exit code, with everything on the terminal as stdout.
func (s *terminalSession) wait() outcome {
	s.t.Helper()
	err := s.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	<-s.done
	code := s.cmd.ProcessState.ExitCode()
	if status, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal()) // as a shell reports it
	}
	return outcome{code: code, stdout: s.text()}
}
