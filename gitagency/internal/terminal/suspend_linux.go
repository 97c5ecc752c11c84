package terminal

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/procfs"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Suspend is called when a signal has stopped the program. It gives the user's terminal back and stops our process group
// in the same way, so that the shell and the processes between it and us notice. It returns when the shell has continued
// us, with the user's terminal in raw mode if we are in its foreground. Then, and where no shell could continue us, the
// program may use its terminal. A program that was stopped because it may not is in the foreground at once if we are.
func (p *PTY) Suspend(stop syscall.Signal) (foreground bool) {
	if groupIsOrphaned() {
		return true
	}
	p.keyboardLock.Lock() // keys typed from now on are for the shell
	defer p.keyboardLock.Unlock()
	if stop != unix.SIGTTIN && stop != unix.SIGTTOU {
		stop = unix.SIGTSTP
	} else if foreground, _ := p.followForeground(); foreground { // perhaps only since the program was stopped
		return true
	}
	defer p.pauseOutput()()
	if !inBackground(p.outerFD) {
		_ = term.Restore(p.outerFD, p.outerState) // relayInput and relayOutput detect a terminal that is gone, here and below
	}
	stopGroup(stop)
	foreground, _ = p.followForeground()
	return foreground
}

// followForeground puts the user's terminal into raw mode if we are in its foreground, and reports that and whether it has
// changed. The caller holds keyboardLock. In the background its modes are those of the shell; setting them would stop us.
// Programs behind us may then be stopped for output as well, if the user has chosen so (stty tostop).
func (p *PTY) followForeground() (foreground, changed bool) {
	background := inBackground(p.outerFD)
	changed = p.background.Swap(background) != background
	outer, err := unix.IoctlGetTermios(p.outerFD, unix.TCGETS)
	if err == nil {
		p.setStopForOutput(background && outer.Lflag&unix.TOSTOP != 0)
	}
	if !background {
		_, _ = term.MakeRaw(p.outerFD)
		p.copySize()
	}
	return !background, changed
}

// setStopForOutput switches TOSTOP of the program's terminal on, or back to what it was before.
func (p *PTY) setStopForOutput(on bool) {
	if on == p.stopsForOutput {
		return
	}
	_ = withFD(p.master, func(fd int) error { // the modes of a master are those of its slave
		modes, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return err
		}
		if on {
			p.stopsForOutput = modes.Lflag&unix.TOSTOP == 0
			modes.Lflag |= unix.TOSTOP
		} else {
			p.stopsForOutput = false
			modes.Lflag &^= unix.TOSTOP
		}
		return unix.IoctlSetTermios(fd, unix.TCSETS, modes)
	})
}

// announceMove follows the foreground, and tells the reader of Moves if it has changed: not if Suspend has noticed it.
func (p *PTY) announceMove() {
	p.keyboardLock.Lock()
	foreground, changed := p.followForeground()
	p.keyboardLock.Unlock()
	if !changed {
		return
	}
	select {
	case <-p.moves: // no longer true
	default:
	}
	p.moves <- foreground
}

// outputPause is a request to copy all output of a stopped program and then to wait.
type outputPause struct{ drained, over chan struct{} }

// pauseOutput waits until all output of the stopped program is copied, and stops copying. The result starts it again.
func (p *PTY) pauseOutput() (resume func()) {
	pause := outputPause{make(chan struct{}), make(chan struct{})}
	p.outputPauses <- pause
	_ = p.master.SetReadDeadline(time.Unix(1, 0)) // ends a read that is blocked; an error means that the terminal is closed
	select {
	case <-pause.drained:
	case <-p.outputDone:
	case <-time.After(p.outputTimeout): // a terminal that accepts nothing
	}
	return func() { close(pause.over) }
}

// stopGroup stops our process group with a signal and returns when it was continued.
func stopGroup(stop syscall.Signal) {
	// The kernel stops us an instant after the call. If it does not, the signal is ignored in this process.
	const instant = time.Second
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	if unix.Kill(0, stop) != nil {
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
		parent, there := procfs.ReadStat(pid)
		if parentSession, err := unix.Getsid(pid); err != nil || !there || parentSession != session {
			return true
		}
		if parent.Group != unix.Getpgrp() {
			return false
		}
		pid = parent.Parent
	}
	return true
}
