package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/ttymodes"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// HasTerminals reports whether this system supports Terminal.
const HasTerminals = true

// Terminal is a pseudo-terminal for a program, connected to the user's terminal. Keys pass unchanged: to us a Ctrl-C is
// a byte, and only the program's terminal turns it into a signal, for the program's foreground process group and never
// for us. A Terminal for output alone passes no keys and leaves the user's terminal as it is: there a Ctrl-C is a signal
// for us.
type Terminal struct {
	// Slave is the program's end: its controlling terminal, unless it is for output alone, and its standard streams as
	// far as those would be the user's terminal. Close closes it; until then our copy keeps the terminal alive for a
	// program that closes it and opens /dev/tty again.
	Slave *os.File

	master     *os.File
	outerFD    int         // descriptor of the user's terminal, for everything but reading
	outerState *term.State // its modes, to be restored; nil: they were not changed
	out        io.Writer
	modes      ttymodes.Tracker // modes that the output has switched on; owned by relayOutput
	resetModes bool             // see ResetModes
	outErr     error            // write error of out; owned by relayOutput, readable by all once outputDone is closed

	inputStarted, closeStarted         chan struct{}   // closed when that begins
	inputDone, outputDone, signalsDone chan struct{}   // closed when that is over
	outputProgress                     chan struct{}   // out has accepted a write
	wakeFD                             int             // closing it interrupts the poll for keys; -1: keys are not read
	outputTimeout                      time.Duration   // for an out that accepts nothing
	patience                           <-chan struct{} // until it is closed there is no such timeout; nil: there is

	// Moves holds whether we are in the foreground of the user's terminal, once that has changed while the program runs.
	Moves chan bool

	background     atomic.Bool // we were in the background when we were continued
	stopsForOutput bool        // TOSTOP of the program's terminal was switched on by us

	keyboardLock sync.Mutex       // held while keys are read, by Suspend and by followForeground
	outputPauses chan outputPause // requests of Suspend to relayOutput

	inputOnce, closeOnce sync.Once
	closeErr             error // result of Close
}

const (
	// The kernel buffers less than this for a terminal. If there is more to drain, a process is still writing.
	maxDrain = 1 << 20
	// A user's terminal that accepts no output for this long is dead: in raw mode there is no Ctrl-S.
	defaultOutputTimeout = 10 * time.Second
	// How often to check whether a process has reopened a terminal that none had open.
	reopenInterval = 50 * time.Millisecond
	// How often to check in the background whether we are in the foreground: a shell need not send a signal.
	foregroundInterval = 100 * time.Millisecond
)

// OpenTerminal creates a pseudo-terminal with the modes and size of the user's terminal, and puts that one into raw
// mode until Close. Output is written to out. It fails with ErrBackground where we are not in the foreground: the
// kernel would stop us until the user types "fg", and processes that wait for us, or for a lock that we hold, would not
// know why.
func OpenTerminal(outer *os.File, out io.Writer) (*Terminal, error) {
	return openTerminal(outer, out, false)
}

// OpenOutputTerminal creates a pseudo-terminal for output alone, which is written to the user's terminal. The program
// can neither read that terminal nor change its modes or size; its own cannot be read from, since no key would arrive.
// Close waits for a user who has stopped the output with Ctrl-S, until ctx ends.
func OpenOutputTerminal(ctx context.Context, outer *os.File) (*Terminal, error) {
	t, err := openTerminal(outer, outer, true)
	if err == nil {
		t.patience = ctx.Done()
	}
	return t, err
}

func openTerminal(outer *os.File, out io.Writer, outputOnly bool) (_ *Terminal, err error) {
	t := &Terminal{
		out: out, outputTimeout: defaultOutputTimeout, outputProgress: make(chan struct{}, 1), outputPauses: make(chan outputPause, 1), wakeFD: -1, Moves: make(chan bool, 1),
		inputStarted: make(chan struct{}), closeStarted: make(chan struct{}),
		inputDone: make(chan struct{}), outputDone: make(chan struct{}), signalsDone: make(chan struct{}),
	}
	var undos []func() error
	defer func() {
		if err == nil {
			return
		}
		for _, undo := range undos {
			err = errors.Join(err, undo())
		}
		err = fmt.Errorf("create a pseudo-terminal like %s: %w", outer.Name(), err)
	}()

	// Our own descriptor, which no one else closes. outer.Fd would also make the file blocking for others.
	if err := withFD(outer, func(fd int) (err error) {
		t.outerFD, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		return err
	}); err != nil {
		return nil, err
	}
	undos = append(undos, func() error { return unix.Close(t.outerFD) })
	modes, err := unix.IoctlGetTermios(t.outerFD, unix.TCGETS)
	if err != nil {
		return nil, os.NewSyscallError("tcgetattr", err)
	}
	flag := unix.O_RDWR
	if outputOnly {
		modes.Oflag &^= unix.OPOST // the user's terminal processes the output, and once is enough
		flag = unix.O_WRONLY
	} else if inBackground(t.outerFD) {
		return nil, ErrBackground
	}

	// From here on no change of the size is missed. We do not handle SIGTSTP from others to leave raw mode when we are
	// stopped: SIGSTOP cannot be handled, so shells with job control set their own modes anyway, and Go cannot restore
	// the default action of a SIGTSTP that was once handled.
	resized, continued := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	signal.Notify(continued, unix.SIGCONT)
	undos = append(undos, func() error { signal.Stop(resized); signal.Stop(continued); return nil })

	if t.master, t.Slave, err = openPTY(modes, flag); err != nil {
		return nil, err
	}
	undos = append(undos, t.master.Close, t.Slave.Close)
	t.copySize()
	if outputOnly {
		close(t.inputDone)
	} else if err := t.connectKeyboard(); err != nil { // the last step that can fail, so that raw mode is always restored
		return nil, err
	}
	go t.relayOutput()
	go t.watchSignals(resized, continued)
	return t, nil
}

// connectKeyboard puts the user's terminal into raw mode and prepares to read its keys.
func (t *Terminal) connectKeyboard() error {
	keyboard, err := openKeyboard(t.outerFD)
	if err != nil {
		return os.NewSyscallError("dup", err)
	}
	var wake [2]int
	if err := unix.Pipe2(wake[:], unix.O_CLOEXEC); err != nil {
		return errors.Join(os.NewSyscallError("pipe", err), unix.Close(keyboard))
	}
	if t.outerState, err = term.MakeRaw(t.outerFD); err != nil {
		return errors.Join(os.NewSyscallError("tcsetattr", err), unix.Close(wake[0]), unix.Close(wake[1]), unix.Close(keyboard))
	}
	t.wakeFD = wake[1]
	go t.relayInput(keyboard, wake[0])
	return nil
}

// StartInput starts to read the keyboard. Call it when the program runs: keys typed before stay for the next reader of
// the terminal. Keys that the program does not read before it ends are lost, as they cannot be put back.
func (t *Terminal) StartInput() { t.inputOnce.Do(func() { close(t.inputStarted) }) }

// ResetModes makes Close switch off the modes that the output has switched on in the user's terminal, such as the
// alternate screen: the program was ended before it could do so.
func (t *Terminal) ResetModes() { t.resetModes = true }

// Close is called when the program and all of its descendants have ended. It stops reading the keyboard, writes the
// remaining output, and restores the user's terminal exactly. A process that still has the program's terminal open gets
// a hangup. The error says which output was lost, or that the terminal was not restored. Close may be called more than
// once.
func (t *Terminal) Close() error {
	t.closeOnce.Do(func() { t.closeErr = t.shutdown() })
	return t.closeErr
}

func (t *Terminal) shutdown() error {
	close(t.closeStarted)
	err := t.master.SetDeadline(time.Unix(1, 0)) // ends reads and writes that are blocked, also for lack of space for keys
	if t.wakeFD >= 0 {
		err = errors.Join(err, unix.Close(t.wakeFD))
	}
	select {
	case <-t.inputDone:
	case <-time.After(time.Second): // see openKeyboard: the read may be waiting for a key that another process took
	}
	err = errors.Join(err, t.waitOutput())
	<-t.signalsDone
	// A terminal that the shell has taken back has the shell's modes, and setting them would stop us.
	if t.outerState != nil && !inBackground(t.outerFD) {
		// Keys typed and not read stay: this neither waits nor flushes.
		err = errors.Join(err, os.NewSyscallError("tcsetattr", term.Restore(t.outerFD, t.outerState)))
	}
	if closeErr := t.Slave.Close(); !errors.Is(closeErr, os.ErrClosed) {
		err = errors.Join(err, closeErr)
	}
	if err = errors.Join(err, t.master.Close(), unix.Close(t.outerFD)); err != nil {
		return fmt.Errorf("close the pseudo-terminal of the program: %w", err)
	}
	return nil
}

// waitOutput waits until out has accepted everything, as long as it accepts anything.
func (t *Terminal) waitOutput() error {
	patience := t.patience
	for {
		var timeout <-chan time.Time
		if patience == nil {
			timeout = time.After(t.outputTimeout)
		}
		select {
		case <-t.outputDone:
			return t.outErr
		case <-t.outputProgress:
		case <-patience:
			patience = nil
		case <-timeout:
			return fmt.Errorf("output was lost: nothing could be written for %s", t.outputTimeout)
		}
	}
}

// relayInput copies keys to the program until Close, or until the user's terminal is hung up: then no more input comes,
// and Close hangs up the program's terminal in turn. In the background the keys are for the shell.
func (t *Terminal) relayInput(keyboard, woken int) {
	defer close(t.inputDone)
	defer unix.Close(woken)
	defer unix.Close(keyboard)
	select {
	case <-t.inputStarted:
	case <-t.closeStarted:
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
		n, err := t.readKeys(keyboard, keys)
		switch {
		case n > 0:
			_, err := t.master.Write(keys[:n])
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) {
				return
			} // any other error: no process has the terminal open for a moment
		case errors.Is(err, ErrBackground):
			select {
			case <-t.closeStarted:
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
func (t *Terminal) readKeys(keyboard int, keys []byte) (int, error) {
	t.keyboardLock.Lock()
	defer t.keyboardLock.Unlock()
	if inBackground(t.outerFD) {
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
func (t *Terminal) relayOutput() {
	defer close(t.outputDone)
	buffer := make([]byte, 4096)
	for {
		n, err := t.master.Read(buffer)
		t.writeOut(buffer[:max(n, 0)])
		if err == nil {
			continue
		}
		select {
		case <-t.closeStarted:
			t.drainOutput(buffer)
			if t.resetModes {
				t.writeOut(t.modes.Reset())
			}
			return
		case pause := <-t.outputPauses:
			t.drainOutput(buffer)
			_ = t.master.SetReadDeadline(time.Time{}) // Close sets another
			close(pause.drained)
			<-pause.over
		case <-time.After(reopenInterval):
		}
	}
}

// drainOutput copies the output that is available now. The kernel returns everything written before it reports EAGAIN,
// so this needs neither a timeout nor an end of file.
func (t *Terminal) drainOutput(buffer []byte) {
	for drained := 0; drained < maxDrain; {
		var n int
		err := withFD(t.master, func(fd int) (err error) {
			n, err = unix.Read(fd, buffer)
			return err
		})
		if errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil || n == 0 {
			return
		}
		t.writeOut(buffer[:n])
		drained += n
	}
}

// writeOut writes to out. After an error the rest is dropped, so that the program does not block on it.
func (t *Terminal) writeOut(p []byte) {
	if len(p) > 0 && t.outErr == nil {
		_, _ = t.modes.Write(p) // never fails
		_, t.outErr = t.out.Write(p)
	}
	select {
	case t.outputProgress <- struct{}{}:
	default:
	}
}

// watchSignals follows the size and the foreground of the user's terminal until Close. After SIGCONT the shell had it in
// between, and has set its own modes. We may be continued in the background: then the program goes on until it uses its
// terminal.
func (t *Terminal) watchSignals(resized, continued chan os.Signal) {
	defer close(t.signalsDone)
	defer signal.Stop(continued)
	defer signal.Stop(resized)
	for {
		var recheck <-chan time.Time
		if t.background.Load() {
			recheck = time.After(foregroundInterval)
		}
		select {
		case <-t.closeStarted:
			return
		case <-resized:
		case <-continued:
			if t.outerState != nil {
				t.announceMove()
			}
		case <-recheck:
			t.announceMove()
		}
		t.copySize()
	}
}

// copySize gives the program's terminal the size of the user's; the kernel sends SIGWINCH to the program.
func (t *Terminal) copySize() {
	size, err := unix.IoctlGetWinsize(t.outerFD, unix.TIOCGWINSZ)
	if err != nil {
		return // it has no size, or is gone
	}
	_ = withFD(t.master, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size) })
}

// inBackground reports whether the kernel would stop us for reading a terminal or setting its modes. A terminal that
// does not control our session does not say, and does not stop us either.
func inBackground(terminal int) bool {
	group, err := unix.IoctlGetUint32(terminal, unix.TIOCGPGRP)
	return err == nil && int(group) != unix.Getpgrp()
}
