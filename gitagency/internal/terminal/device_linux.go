package terminal

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// openDevice opens a pseudo-terminal device with these modes, or with those of a new terminal if modes is nil. The master is non-blocking, so that waiting for it can be
// interrupted; the slave is an ordinary terminal, opened with flag.
func openDevice(modes *unix.Termios, flag int) (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	slave, err = openSlave(fd, modes, flag)
	if err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	return master, slave, nil
}

func openSlave(master int, modes *unix.Termios, flag int) (*os.File, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return nil, os.NewSyscallError("unlockpt", err)
	}
	number, err := unix.IoctlGetUint32(master, unix.TIOCGPTN)
	if err != nil {
		return nil, os.NewSyscallError("ptsname", err)
	}
	name := "/dev/pts/" + strconv.FormatUint(uint64(number), 10)
	flag |= unix.O_NOCTTY | unix.O_CLOEXEC
	// Through the master: the path may name a terminal of another devpts mount. An old kernel only has the path.
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, uintptr(flag))
	if errno != 0 {
		named, err := unix.Open(name, flag, 0)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
		fd = uintptr(named)
	}
	slave := os.NewFile(fd, name)
	if modes == nil {
		return slave, nil
	}
	if err := unix.IoctlSetTermios(int(fd), unix.TCSETS, modes); err != nil {
		return nil, errors.Join(os.NewSyscallError("tcsetattr", err), slave.Close())
	}
	return slave, nil
}

// openKeyboard opens a terminal once more, for non-blocking reads: another reader, such as a pager behind our output,
// may take a key that poll has announced. The open file description of outerFD is shared with the shell and must not
// change. A terminal that we may not open, as after su, is read through outerFD: then Close may have to leave a blocked
// read behind.
func openKeyboard(outerFD int) (int, error) {
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(outerFD), unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return unix.FcntlInt(uintptr(outerFD), unix.F_DUPFD_CLOEXEC, 3)
	}
	return fd, nil
}

// withFD calls do with the descriptor of a file, which is not closed meanwhile.
func withFD(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if controlErr := conn.Control(func(fd uintptr) { err = do(int(fd)) }); controlErr != nil {
		return controlErr
	}
	return err
}

// Same reports whether two files are the same terminal, under any name: /dev/tty is one more name of it.
func Same(a, b *os.File) bool {
	deviceOf := func(f *os.File) (device uint32, err error) {
		err = withFD(f, func(fd int) (err error) {
			device, err = unix.IoctlGetUint32(fd, unix.TIOCGDEV)
			return err
		})
		return device, err
	}
	first, err := deviceOf(a)
	second, err2 := deviceOf(b)
	return err == nil && err2 == nil && first == second
}
