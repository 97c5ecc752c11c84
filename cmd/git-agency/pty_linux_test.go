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

// session is a command that runs on a terminal of its own.
type session struct {
	t        *testing.T
	cmd      *exec.Cmd
	keyboard *os.File

	mu     sync.Mutex
	screen strings.Builder
	grew   chan struct{} // somebody may want to look again
	ended  chan struct{} // nothing will be written any more
}

// onTerminal starts a command in the repository, on a terminal with so many columns that can do colour.
// No pager and no wish about colour is in the environment, but for what is given here.
func (l *lab) onTerminal(columns int, extraEnv []string, argv ...string) *session {
	l.t.Helper()
	master, slave := openTerminal(l.t, columns)
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
	s := &session{t: l.t, cmd: cmd, keyboard: master, grew: make(chan struct{}, 1), ended: make(chan struct{})}
	go s.watch()
	return s
}

// openTerminal makes a terminal that changes nothing of what is written to it.
func openTerminal(t *testing.T, columns int) (master, slave *os.File) {
	t.Helper()
	master, slave = openPTY(t, 24, columns)
	t.Cleanup(func() { _ = master.Close() }) // the other end may have gone first
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

// openPTY makes the two ends of a terminal.
func openPTY(t *testing.T, rows, columns int) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no pseudo terminals here: %v", err)
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

// watch collects what appears on the terminal until nobody has it open any more.
func (s *session) watch() {
	defer close(s.ended)
	buffer := make([]byte, 1<<16)
	for {
		n, err := s.keyboard.Read(buffer)
		s.mu.Lock()
		s.screen.Write(buffer[:n])
		s.mu.Unlock()
		select {
		case s.grew <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func (s *session) seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen.String()
}

// awaits waits until a text has appeared.
func (s *session) awaits(text string) { s.t.Helper(); s.insists("", text) }

// insists types keys, again and again, until a text has appeared: a shell that is just about to wait for
// a key can miss a signal.
func (s *session) insists(keys, text string) {
	s.t.Helper()
	deadline, again := time.After(30*time.Second), time.NewTicker(time.Second)
	defer again.Stop()
	s.types(keys)
	for !strings.Contains(s.seen(), text) {
		select {
		case <-s.grew:
		case <-again.C:
			s.types(keys)
		case <-s.ended:
			if !strings.Contains(s.seen(), text) {
				s.t.Fatalf("%q ended without %q:\n%s", s.cmd.Args, text, s.seen())
			}
		case <-deadline:
			s.t.Fatalf("%q does not print %q:\n%s", s.cmd.Args, text, s.seen())
		}
	}
}

func (s *session) types(keys string) {
	s.t.Helper()
	if _, err := s.keyboard.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// ends waits for the command and returns how it ended, with all that was on the terminal as stdout.
func (s *session) ends() outcome {
	s.t.Helper()
	err := s.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	<-s.ended
	code := s.cmd.ProcessState.ExitCode()
	if status, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal()) // as a shell sees it
	}
	return outcome{code: code, stdout: s.seen()}
}
