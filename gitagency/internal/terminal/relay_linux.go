package terminal

import (
	"errors"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// relayInput copies keys to the program until Close, or until the user's terminal is hung up: then no more input comes,
// and Close hangs up the program's terminal in turn. In the background the keys are for the shell.
func (p *PTY) relayInput(keyboard, woken int) {
	defer close(p.inputDone)
	defer unix.Close(woken)
	defer unix.Close(keyboard)
	select {
	case <-p.inputStarted:
	case <-p.closeStarted:
		return
	}
	keys := make([]byte, 4096)
	for {
		// Poll before reading, so that a key typed after Close is never taken.
		ready := []unix.PollFd{{Fd: int32(keyboard), Events: unix.POLLIN}, {Fd: int32(woken)}}
		if _, err := unix.Poll(ready, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil || ready[1].Revents != 0 {
			return
		}
		n, err := p.readKeys(keyboard, keys)
		switch {
		case n > 0:
			_, err := p.master.Write(keys[:n])
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) {
				return
			} // any other error: no process has the terminal open for a moment
		case errors.Is(err, ErrBackground):
			select {
			case <-p.closeStarted:
			case <-time.After(foregroundInterval):
			}
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // another process was faster, or the shell during Suspend
		case err == nil && ready[0].Revents&unix.POLLHUP == 0: // a Ctrl-D, while another process had set the modes
		default:
			return
		}
	}
}

// readKeys reads keys that poll has announced, unless another process has read them meanwhile.
func (p *PTY) readKeys(keyboard int, keys []byte) (int, error) {
	p.keyboardLock.Lock()
	defer p.keyboardLock.Unlock()
	if inBackground(p.outerFD) {
		return 0, ErrBackground
	}
	ready := []unix.PollFd{{Fd: int32(keyboard), Events: unix.POLLIN}}
	if n, err := unix.Poll(ready, 0); err != nil {
		return 0, err
	} else if n == 0 {
		return 0, unix.EAGAIN
	}
	return unix.Read(keyboard, keys)
}

// relayOutput copies the program's output to out until Close. That no other process has the terminal open may be
// temporary; only the caller of Close knows that it is final.
func (p *PTY) relayOutput() {
	defer close(p.outputDone)
	buffer := make([]byte, 4096)
	for {
		n, err := p.master.Read(buffer)
		p.writeOut(buffer[:max(n, 0)])
		if err == nil {
			continue
		}
		select {
		case <-p.closeStarted:
			p.drainOutput(buffer)
			if p.resetModes {
				p.writeOut(p.modes.reset())
			}
			return
		case pause := <-p.outputPauses:
			p.drainOutput(buffer)
			_ = p.master.SetReadDeadline(time.Time{}) // Close sets another
			close(pause.drained)
			<-pause.over
		case <-time.After(reopenInterval):
		}
	}
}

// drainOutput copies the output that is available now. The kernel returns everything written before it reports EAGAIN,
// so this needs neither a timeout nor an end of file.
func (p *PTY) drainOutput(buffer []byte) {
	for drained := 0; drained < maxDrain; {
		var n int
		err := withFD(p.master, func(fd int) (err error) {
			n, err = unix.Read(fd, buffer)
			return err
		})
		if errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil || n == 0 {
			return
		}
		p.writeOut(buffer[:n])
		drained += n
	}
}

// writeOut writes to out. After an error the rest is dropped, so that the program does not block on it.
func (p *PTY) writeOut(data []byte) {
	if len(data) > 0 && p.outErr == nil {
		p.modes.follow(data)
		_, p.outErr = p.out.Write(data)
	}
	select {
	case p.outputProgress <- struct{}{}:
	default:
	}
}

// watchSignals follows the size and the foreground of the user's terminal until Close. After SIGCONT the shell had it in
// between, and has set its own modes. We may be continued in the background: then the program goes on until it uses its
// terminal.
func (p *PTY) watchSignals(resized, continued chan os.Signal) {
	defer close(p.signalsDone)
	defer signal.Stop(continued)
	defer signal.Stop(resized)
	for {
		var recheck <-chan time.Time
		if p.background.Load() {
			recheck = time.After(foregroundInterval)
		}
		select {
		case <-p.closeStarted:
			return
		case <-resized:
		case <-continued:
			if p.outerState != nil {
				p.announceMove()
			}
		case <-recheck:
			p.announceMove()
		}
		p.copySize()
	}
}

// copySize gives the program's terminal the size of the user's; the kernel sends SIGWINCH to the program.
func (p *PTY) copySize() {
	size, err := unix.IoctlGetWinsize(p.outerFD, unix.TIOCGWINSZ)
	if err != nil {
		return // it has no size, or is gone
	}
	_ = withFD(p.master, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size) })
}

// inBackground reports whether the kernel would stop us for reading a terminal or setting its modes. A terminal that
// does not control our session does not say, and does not stop us either.
func inBackground(terminal int) bool {
	group, err := unix.IoctlGetUint32(terminal, unix.TIOCGPGRP)
	return err == nil && int(group) != unix.Getpgrp()
}
