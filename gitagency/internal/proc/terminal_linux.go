package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Terminal is a terminal of a program's own, behind the one that a person sits at. Keys pass to it as they
// are: a Ctrl-C is a byte to us, and only the program's terminal makes a signal of it, which reaches those
// that the program has in its foreground and never ourselves.
type Terminal struct {
	// Slave is the program's end: to be its input and its output, as far as those would be the terminal of
	// the person, and the terminal that controls its session. Close closes it; until then our copy keeps
	// the terminal alive for a program that closes it and opens /dev/tty again.
	Slave *os.File

	master *os.File
	at     int         // the terminal of the person, for all but reading
	before *term.State // of that
	out    io.Writer
	outErr error // why out takes no more; whoever shows may look, and everybody once shown is closed

	relaying, closing      chan struct{} // closed when that begins
	relayed, shown, minded chan struct{} // closed when that is over
	progress               chan struct{} // out has taken something
	wake                   int           // closing it interrupts the wait for keys
	patience               time.Duration // with an out that takes nothing

	relay, end sync.Once
	err        error // of end
}

const (
	// More than this the kernel does not hold back for a terminal. If there is more to drain, then somebody
	// still writes.
	drainAtMost = 1 << 20
	// A person's terminal that takes nothing for so long, though there is no Ctrl-S in raw mode, has no
	// person.
	outputPatience = 10 * time.Second
	// How often to look whether somebody has opened a terminal again that nobody had open.
	reopenPause = 50 * time.Millisecond
)

// OpenTerminal makes a terminal that looks like the one of the person, in modes and in size, and puts that
// one into raw mode until Close. What appears on it is written to out. It fails with ErrBackground where we
// are not in the foreground: the kernel would stop us until somebody says "fg", and whoever waits for us, or
// for a lock that we hold, would not know why.
func OpenTerminal(at *os.File, out io.Writer) (_ *Terminal, err error) {
	t := &Terminal{
		out: out, patience: outputPatience, progress: make(chan struct{}, 1),
		relaying: make(chan struct{}), closing: make(chan struct{}),
		relayed: make(chan struct{}), shown: make(chan struct{}), minded: make(chan struct{}),
	}
	var opened []func() error
	defer func() {
		if err == nil {
			return
		}
		for _, undo := range opened {
			err = errors.Join(err, undo())
		}
		err = fmt.Errorf("a terminal like %s: %w", at.Name(), err)
	}()

	// A descriptor of our own, which nobody closes. at.Fd would also change how others wait for it.
	if err := control(at, func(fd int) (err error) {
		t.at, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		return err
	}); err != nil {
		return nil, err
	}
	opened = append(opened, func() error { return unix.Close(t.at) })
	modes, err := unix.IoctlGetTermios(t.at, unix.TCGETS)
	if err != nil {
		return nil, os.NewSyscallError("tcgetattr", err)
	}
	if inBackground(t.at) {
		return nil, ErrBackground
	}

	// From here on no change of the size is missed. We do not ask for SIGTSTP, to leave raw mode when we are
	// stopped: SIGSTOP would not ask us either, so that shells with jobs set their own modes anyway, and Go
	// cannot give its default back to a SIGTSTP that was once asked for.
	resized, continued := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	signal.Notify(continued, unix.SIGCONT)
	opened = append(opened, func() error { signal.Stop(resized); signal.Stop(continued); return nil })

	if t.master, t.Slave, err = openPair(modes); err != nil {
		return nil, err
	}
	opened = append(opened, t.master.Close, t.Slave.Close)
	t.resize()
	keyboard, err := openKeyboard(t.at)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	opened = append(opened, func() error { return unix.Close(keyboard) })
	var wake [2]int
	if err := unix.Pipe2(wake[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe", err)
	}
	t.wake = wake[1]
	opened = append(opened, func() error { return errors.Join(unix.Close(wake[0]), unix.Close(wake[1])) })

	// The last that can fail, so that there is never a raw terminal without somebody to restore it.
	if t.before, err = term.MakeRaw(t.at); err != nil {
		return nil, os.NewSyscallError("tcsetattr", err)
	}
	go t.pass(keyboard, wake[0])
	go t.show()
	go t.mind(resized, continued)
	return t, nil
}

// Relay begins to read the keyboard, and is for when there is a program that wants the keys: what was typed
// before and is not relayed stays for whoever reads the terminal next. What a program does not read before
// it ends is lost, as there is no way to put it back.
func (t *Terminal) Relay() { t.relay.Do(func() { close(t.relaying) }) }

// Close is for when the program and all that it started have ended. It stops reading the keyboard, shows
// what was still written, and puts the terminal of the person back exactly as it was. Whoever has the
// program's terminal open all the same is hung up. The error says what of the output was lost, or that the
// terminal is not restored. Close may be called more than once.
func (t *Terminal) Close() error {
	t.end.Do(func() { t.err = t.finish() })
	return t.err
}

func (t *Terminal) finish() error {
	close(t.closing)
	err := errors.Join(
		unix.Close(t.wake),
		t.master.SetDeadline(time.Unix(1, 0)), // whoever waits for it stops, also for room for keys
	)
	select {
	case <-t.relayed:
	case <-time.After(time.Second): // see openKeyboard: we may be waiting for a key that somebody else has got
	}
	err = errors.Join(err, t.allShown())
	<-t.minded
	// A terminal that the shell took back from us has the modes of the shell, and we would be stopped.
	if !inBackground(t.at) {
		// What is typed and not read stays: this neither waits nor flushes.
		err = errors.Join(err, os.NewSyscallError("tcsetattr", term.Restore(t.at, t.before)))
	}
	if closeErr := t.Slave.Close(); !errors.Is(closeErr, os.ErrClosed) {
		err = errors.Join(err, closeErr)
	}
	if err = errors.Join(err, t.master.Close(), unix.Close(t.at)); err != nil {
		return fmt.Errorf("leave the program's terminal: %w", err)
	}
	return nil
}

// allShown waits until out has taken everything, as long as it takes anything.
func (t *Terminal) allShown() error {
	for {
		select {
		case <-t.shown:
			return t.outErr
		case <-t.progress:
		case <-time.After(t.patience):
			return fmt.Errorf("output was lost: nothing was taken for %s", t.patience)
		}
	}
}

// pass passes keys to the program until Close, or until the terminal is hung up: then there is nothing more
// to come, and the program is hung up in turn by Close. Whoever sits in the background when there is
// something to read is stopped by the kernel, which is how the person learns that "fg" is needed.
func (t *Terminal) pass(keyboard, woken int) {
	defer close(t.relayed)
	defer unix.Close(woken)
	defer unix.Close(keyboard)
	select {
	case <-t.relaying:
	case <-t.closing:
		return
	}
	keys := make([]byte, 4096)
	for {
		// Not read until there is something, so that a key typed after Close is never ours.
		ready := []unix.PollFd{{Fd: int32(keyboard), Events: unix.POLLIN}, {Fd: int32(woken)}}
		if _, err := unix.Poll(ready, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil || ready[1].Revents != 0 {
			return
		}
		n, err := unix.Read(keyboard, keys)
		switch {
		case n > 0:
			_, err := t.master.Write(keys[:n])
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) {
				return
			} // any other: for a moment nobody is there to take them
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // somebody else was faster
		case err == nil && ready[0].Revents&unix.POLLHUP == 0: // a Ctrl-D, while somebody else had set the modes
		default:
			return
		}
	}
}

// show writes to out what the program writes to its terminal, until Close. That the terminal is open on no
// side but ours may be for a moment only, and only the caller of Close knows that it is for ever.
func (t *Terminal) show() {
	defer close(t.shown)
	buffer := make([]byte, 4096)
	for {
		n, err := t.master.Read(buffer)
		t.write(buffer[:max(n, 0)])
		if err == nil {
			continue
		}
		select {
		case <-t.closing:
			t.drain(buffer)
			return
		case <-time.After(reopenPause):
		}
	}
}

// drain shows what is there now. The kernel hands over everything that was written before it says that
// there is nothing, so that this needs no time to wait, and no end of file.
func (t *Terminal) drain(buffer []byte) {
	for drained := 0; drained < drainAtMost; {
		var n int
		err := control(t.master, func(fd int) (err error) {
			n, err = unix.Read(fd, buffer)
			return err
		})
		if errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil || n == 0 {
			return
		}
		t.write(buffer[:n])
		drained += n
	}
}

// write shows something. When out fails the program shall not have to wait for it: the rest is dropped.
func (t *Terminal) write(p []byte) {
	if len(p) > 0 && t.outErr == nil {
		_, t.outErr = t.out.Write(p)
	}
	select {
	case t.progress <- struct{}{}:
	default:
	}
}

// mind follows the terminal of the person until Close: its size, and who has it. When we are continued the
// shell had it in between, and has set modes of its own. If we are continued in the background, then asking
// for raw mode stops us again, as it does to every program that needs the keyboard.
func (t *Terminal) mind(resized, continued chan os.Signal) {
	defer close(t.minded)
	defer signal.Stop(continued)
	defer signal.Stop(resized)
	for {
		select {
		case <-t.closing:
			return
		case <-resized:
		case <-continued:
			_, _ = term.MakeRaw(t.at) // a terminal that is gone is found out by whoever reads and writes
		}
		t.resize()
	}
}

// resize gives the program's terminal the size of the person's; the kernel tells the program.
func (t *Terminal) resize() {
	size, err := unix.IoctlGetWinsize(t.at, unix.TIOCGWINSZ)
	if err != nil {
		return // it has no size, or is gone
	}
	_ = control(t.master, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size) })
}

// inBackground reports whether the kernel would stop us for reading a terminal or setting its modes. One
// that does not control our session does not tell, and does not stop us either.
func inBackground(terminal int) bool {
	group, err := unix.IoctlGetUint32(terminal, unix.TIOCGPGRP)
	return err == nil && int(group) != unix.Getpgrp()
}

// openPair makes the two ends of a terminal with these modes. Of ours, waiting can be interrupted; the
// program's is an ordinary one.
func openPair(modes *unix.Termios) (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	slave, err = openSlave(fd, modes)
	if err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	return master, slave, nil
}

func openSlave(master int, modes *unix.Termios) (*os.File, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return nil, os.NewSyscallError("unlockpt", err)
	}
	number, err := unix.IoctlGetUint32(master, unix.TIOCGPTN)
	if err != nil {
		return nil, os.NewSyscallError("ptsname", err)
	}
	name := "/dev/pts/" + strconv.FormatUint(uint64(number), 10)
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	// By its other end: by that name, another terminal may be mounted here. An old kernel has only names.
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
	if errno != 0 {
		named, err := unix.Open(name, flags, 0)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
		fd = uintptr(named)
	}
	slave := os.NewFile(fd, name)
	if err := unix.IoctlSetTermios(int(fd), unix.TCSETS, modes); err != nil {
		return nil, errors.Join(os.NewSyscallError("tcsetattr", err), slave.Close())
	}
	return slave, nil
}

// openKeyboard opens a terminal once more, to be read without waiting: to others who read it, such as a
// pager behind our output, we may lose a key that we were told of. What at was opened as is shared with the
// shell, for which nothing must change. A terminal that is not ours to open, as after su, is read as it is:
// then Close may have to leave a read behind.
func openKeyboard(at int) (int, error) {
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(at), unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return unix.FcntlInt(uintptr(at), unix.F_DUPFD_CLOEXEC, 3)
	}
	return fd, nil
}

// control does something to the descriptor of a file, which is not closed meanwhile.
func control(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if controlErr := conn.Control(func(fd uintptr) { err = do(int(fd)) }); controlErr != nil {
		return controlErr
	}
	return err
}
