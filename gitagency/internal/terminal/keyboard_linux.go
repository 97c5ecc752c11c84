package terminal

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// keyboard reads the keys of the user's terminal, which has other modes meanwhile.
type keyboard struct {
	outerFD int           // descriptor of the terminal, for everything but reading
	readFD  int           // see openKeyboard
	wake    [2]int        // closing the second interrupts read
	before  *unix.Termios // modes to restore
	raw     bool          // no key has a meaning for the terminal; else those that send signals do
	done    chan struct{} // closed when read has ended
}

// openKeys changes the modes of a terminal. It fails with ErrBackground where we are not in the foreground.
func openKeys(outer *os.File, raw bool) (_ *keyboard, err error) {
	k := &keyboard{raw: raw, readFD: -1, wake: [2]int{-1, -1}, done: make(chan struct{})}
	if err := withFD(outer, func(fd int) (err error) {
		k.outerFD, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		return err
	}); err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	defer func() {
		if err != nil {
			closeAll([]int{k.outerFD, k.readFD, k.wake[0], k.wake[1]})
		}
	}()
	if inBackground(k.outerFD) {
		return nil, ErrBackground
	}
	if k.before, err = unix.IoctlGetTermios(k.outerFD, unix.TCGETS); err != nil {
		return nil, os.NewSyscallError("tcgetattr", err)
	}
	if k.readFD, err = openKeyboard(k.outerFD); err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	if err := unix.Pipe2(k.wake[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe", err)
	}
	return k, k.setModes()
}

// setModes sets the modes for reading, unless the terminal is the shell's now.
func (k *keyboard) setModes() error {
	if inBackground(k.outerFD) {
		return nil
	}
	if k.raw {
		_, err := term.MakeRaw(k.outerFD)
		return os.NewSyscallError("tcsetattr", err)
	}
	modes := *k.before
	modes.Lflag &^= unix.ICANON | unix.ECHO
	modes.Iflag &^= unix.IXON // Ctrl-Q is a key
	modes.Cc[unix.VMIN], modes.Cc[unix.VTIME] = 1, 0
	return os.NewSyscallError("tcsetattr", unix.IoctlSetTermios(k.outerFD, unix.TCSETS, &modes))
}

// read passes keys on until pass returns false, the terminal is hung up or close is called.
func (k *keyboard) read(pass func(keys []byte) bool) {
	defer close(k.done)
	keys := make([]byte, 4096)
	for {
		ready := []unix.PollFd{{Fd: int32(k.readFD), Events: unix.POLLIN}, {Fd: int32(k.wake[0])}}
		if _, err := unix.Poll(ready, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil || ready[1].Revents != 0 {
			return
		}
		if inBackground(k.outerFD) { // they are for the shell
			time.Sleep(foregroundInterval)
			continue
		}
		n, err := unix.Read(k.readFD, keys)
		switch {
		case n > 0 && !pass(keys[:n]):
			return
		case n > 0, errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		default:
			return
		}
	}
}

func (k *keyboard) size() (size unix.Winsize) {
	if current, err := unix.IoctlGetWinsize(k.outerFD, unix.TIOCGWINSZ); err == nil {
		size = *current
	}
	return size
}

// close ends read, which must have been called, and restores the modes.
func (k *keyboard) close() (err error) {
	_ = unix.Close(k.wake[1])
	unused := []int{k.outerFD}
	select {
	case <-k.done:
		unused = append(unused, k.readFD, k.wake[0])
	case <-time.After(time.Second): // see openKeyboard: the read may be waiting for a key that another process took
	}
	// A terminal that the shell has taken back has the shell's modes, and setting them would stop us.
	if !inBackground(k.outerFD) {
		err = os.NewSyscallError("tcsetattr", unix.IoctlSetTermios(k.outerFD, unix.TCSETS, k.before))
	}
	closeAll(unused)
	return err
}

// closeAll closes descriptors; a negative one is none.
func closeAll(descriptors []int) {
	for _, fd := range descriptors {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// WatchKeys cancels the context with ErrDetached when a sequence of keys is typed at a terminal. Other keys are dropped,
// except for those that send signals. The returned function restores the terminal.
func WatchKeys(parent context.Context, outer *os.File, keys []byte) (_ context.Context, stop func() error, err error) {
	k, err := openKeys(outer, false)
	if err != nil {
		return parent, nil, err
	}
	ctx, cancel := context.WithCancelCause(parent)
	matcher := keyMatcher{keys: keys}
	go k.read(func(typed []byte) bool {
		_, complete := matcher.filter(typed)
		if complete {
			cancel(ErrDetached)
		}
		return !complete
	})
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	go func() {
		for {
			select {
			case <-ctx.Done():
				signal.Stop(continued)
				return
			case <-continued: // the shell has set its own modes
				_ = k.setModes() // a terminal that is gone ends read
			}
		}
	}()
	return ctx, func() error { cancel(nil); return k.close() }, nil
}
