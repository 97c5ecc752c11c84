package proc

import (
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Suspend is called when the program has stopped. It gives the user's terminal back and stops our process group, as
// Ctrl-Z does to an ordinary job, so that the shell and the processes between it and us notice. It returns when the
// shell has continued us in the foreground and the terminal is in raw mode again. Where no shell could continue us, it
// returns at once.
func (t *Terminal) Suspend() {
	if groupIsOrphaned() {
		return
	}
	t.keyboardLock.Lock() // keys typed from now on are for the shell
	defer t.keyboardLock.Unlock()
	defer t.pauseOutput()()
	if !inBackground(t.outerFD) {
		_ = term.Restore(t.outerFD, t.outerState) // relayInput and relayOutput detect a terminal that is gone, here and below
	}
	stopGroup()
	_, _ = term.MakeRaw(t.outerFD) // continued in the background, this stops us again until we are in the foreground
	t.copySize()
}

// outputPause is a request to copy all output of a stopped program and then to wait.
type outputPause struct{ drained, over chan struct{} }

// pauseOutput waits until all output of the stopped program is copied, and stops copying. The result starts it again.
func (t *Terminal) pauseOutput() (resume func()) {
	pause := outputPause{make(chan struct{}), make(chan struct{})}
	t.outputPauses <- pause
	_ = t.master.SetReadDeadline(time.Unix(1, 0)) // ends a read that is blocked; an error means that the terminal is closed
	select {
	case <-pause.drained:
	case <-t.outputDone:
	case <-time.After(t.outputTimeout): // a terminal that accepts nothing
	}
	return func() { close(pause.over) }
}

// stopGroup stops our process group and returns when it was continued.
func stopGroup() {
	// The kernel stops us an instant after the call. If it does not, the signal is ignored in this process.
	const instant = time.Second
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	if unix.Kill(0, unix.SIGTSTP) != nil {
		return
	}
	select {
	case <-continued:
	case <-time.After(instant):
	}
}

// groupIsOrphaned reports whether our process group has no parent in our session that could continue it. The kernel
// ignores SIGTSTP in such a group.
func groupIsOrphaned() bool {
	session, err := unix.Getsid(0)
	if err != nil {
		return true
	}
	for pid := os.Getppid(); pid > 0; {
		parent, there := readProcStat(pid)
		if parentSession, err := unix.Getsid(pid); err != nil || !there || parentSession != session {
			return true
		}
		if parent.group != unix.Getpgrp() {
			return false
		}
		pid = parent.parent
	}
	return true
}
