package terminal

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

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Supported reports whether this system supports PTY.
const Supported = true

// PTY is a pseudo-terminal for a program, connected to the user's terminal. Keys pass unchanged: to us a Ctrl-C is
// a byte, and only the program's terminal turns it into a signal, for the program's foreground process group and never
// for us. A PTY for output alone passes no keys and leaves the user's terminal as it is: there a Ctrl-C is a signal
// for us.
type PTY struct {
	// Slave is the program's end: its controlling terminal, unless it is for output alone, and its standard streams as
	// far as those would be the user's terminal. Close closes it; until then our copy keeps the terminal alive for a
	// program that closes it and opens /dev/tty again.
	Slave *os.File

	master     *os.File
	outerFD    int         // descriptor of the user's terminal, for everything but reading
	outerState *term.State // its modes, to be restored; nil: they were not changed
	out        io.Writer
	modes      modeTracker // modes that the output has switched on; owned by relayOutput
	resetModes bool        // see ResetModes
	outErr     error       // write error of out; owned by relayOutput, readable by all once outputDone is closed

	inputStarted, closeStarted         chan struct{}   // closed when that begins
	inputDone, outputDone, signalsDone chan struct{}   // closed when that is over
	outputProgress                     chan struct{}   // out has accepted a write
	wakeFD                             int             // closing it interrupts the poll for keys; -1: keys are not read
	outputTimeout                      time.Duration   // for an out that accepts nothing
	patience                           <-chan struct{} // until it is closed there is no such timeout; nil: there is

	// Moves holds whether we are in the foreground of the user's terminal, once that has changed while the program runs.
	Moves <-chan bool
	moves chan bool // the same channel

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

// Open creates a pseudo-terminal with the modes and size of the user's terminal, and puts that one into raw
// mode until Close. Output is written to out. It fails with ErrBackground where we are not in the foreground: the
// kernel would stop us until the user types "fg", and processes that wait for us, or for a lock that we hold, would not
// know why.
func Open(outer *os.File, out io.Writer) (*PTY, error) {
	return openPTY(outer, out, false)
}

// OpenOutput creates a pseudo-terminal for output alone, which is written to the user's terminal. The program
// can neither read that terminal nor change its modes or size; its own cannot be read from, since no key would arrive.
// Close waits for a user who has stopped the output with Ctrl-S, until ctx ends.
func OpenOutput(ctx context.Context, outer *os.File) (*PTY, error) {
	p, err := openPTY(outer, outer, true)
	if err == nil {
		p.patience = ctx.Done()
	}
	return p, err
}

func openPTY(outer *os.File, out io.Writer, outputOnly bool) (_ *PTY, err error) {
	p := &PTY{
		out: out, outputTimeout: defaultOutputTimeout, outputProgress: make(chan struct{}, 1), outputPauses: make(chan outputPause, 1), wakeFD: -1, moves: make(chan bool, 1),
		inputStarted: make(chan struct{}), closeStarted: make(chan struct{}),
		inputDone: make(chan struct{}), outputDone: make(chan struct{}), signalsDone: make(chan struct{}),
	}
	p.Moves = p.moves
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
		p.outerFD, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		return err
	}); err != nil {
		return nil, err
	}
	undos = append(undos, func() error { return unix.Close(p.outerFD) })
	modes, err := unix.IoctlGetTermios(p.outerFD, unix.TCGETS)
	if err != nil {
		return nil, os.NewSyscallError("tcgetattr", err)
	}
	flag := unix.O_RDWR
	if outputOnly {
		modes.Oflag &^= unix.OPOST // the user's terminal processes the output, and once is enough
		flag = unix.O_WRONLY
	} else if inBackground(p.outerFD) {
		return nil, ErrBackground
	}

	// From here on no change of the size is missed. We do not handle SIGTSTP from others to leave raw mode when we are
	// stopped: SIGSTOP cannot be handled, so shells with job control set their own modes anyway, and Go cannot restore
	// the default action of a SIGTSTP that was once handled.
	resized, continued := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	signal.Notify(continued, unix.SIGCONT)
	undos = append(undos, func() error { signal.Stop(resized); signal.Stop(continued); return nil })

	if p.master, p.Slave, err = openDevice(modes, flag); err != nil {
		return nil, err
	}
	undos = append(undos, p.master.Close, p.Slave.Close)
	p.copySize()
	if outputOnly {
		close(p.inputDone)
	} else if err := p.connectKeyboard(); err != nil { // the last step that can fail, so that raw mode is always restored
		return nil, err
	}
	go p.relayOutput()
	go p.watchSignals(resized, continued)
	return p, nil
}

// connectKeyboard puts the user's terminal into raw mode and prepares to read its keys.
func (p *PTY) connectKeyboard() error {
	keyboard, err := openKeyboard(p.outerFD)
	if err != nil {
		return os.NewSyscallError("dup", err)
	}
	var wake [2]int
	if err := unix.Pipe2(wake[:], unix.O_CLOEXEC); err != nil {
		return errors.Join(os.NewSyscallError("pipe", err), unix.Close(keyboard))
	}
	if p.outerState, err = term.MakeRaw(p.outerFD); err != nil {
		return errors.Join(os.NewSyscallError("tcsetattr", err), unix.Close(wake[0]), unix.Close(wake[1]), unix.Close(keyboard))
	}
	p.wakeFD = wake[1]
	go p.relayInput(keyboard, wake[0])
	return nil
}

// StartInput starts to read the keyboard. Call it when the program runs: keys typed before stay for the next reader of
// the terminal. Keys that the program does not read before it ends are lost, as they cannot be put back.
func (p *PTY) StartInput() { p.inputOnce.Do(func() { close(p.inputStarted) }) }

// ResetModes makes Close switch off the modes that the output has switched on in the user's terminal, such as the
// alternate screen: the program was ended before it could do so.
func (p *PTY) ResetModes() { p.resetModes = true }

// Close is called when the program and all of its descendants have ended. It stops reading the keyboard, writes the
// remaining output, and restores the user's terminal exactly. A process that still has the program's terminal open gets
// a hangup. The error says which output was lost, or that the terminal was not restored. Close may be called more than
// once.
func (p *PTY) Close() error {
	p.closeOnce.Do(func() { p.closeErr = p.shutdown() })
	return p.closeErr
}

func (p *PTY) shutdown() error {
	close(p.closeStarted)
	err := p.master.SetDeadline(time.Unix(1, 0)) // ends reads and writes that are blocked, also for lack of space for keys
	if p.wakeFD >= 0 {
		err = errors.Join(err, unix.Close(p.wakeFD))
	}
	select {
	case <-p.inputDone:
	case <-time.After(time.Second): // see openKeyboard: the read may be waiting for a key that another process took
	}
	err = errors.Join(err, p.waitOutput())
	<-p.signalsDone
	// A terminal that the shell has taken back has the shell's modes, and setting them would stop us.
	if p.outerState != nil && !inBackground(p.outerFD) {
		// Keys typed and not read stay: this neither waits nor flushes.
		err = errors.Join(err, os.NewSyscallError("tcsetattr", term.Restore(p.outerFD, p.outerState)))
	}
	if closeErr := p.Slave.Close(); !errors.Is(closeErr, os.ErrClosed) {
		err = errors.Join(err, closeErr)
	}
	if err = errors.Join(err, p.master.Close(), unix.Close(p.outerFD)); err != nil {
		return fmt.Errorf("close the pseudo-terminal of the program: %w", err)
	}
	return nil
}

// waitOutput waits until out has accepted everything, as long as it accepts anything.
func (p *PTY) waitOutput() error {
	patience := p.patience
	for {
		var timeout <-chan time.Time
		if patience == nil {
			timeout = time.After(p.outputTimeout)
		}
		select {
		case <-p.outputDone:
			return p.outErr
		case <-p.outputProgress:
		case <-patience:
			patience = nil
		case <-timeout:
			return fmt.Errorf("output was lost: nothing could be written for %s", p.outputTimeout)
		}
	}
}
