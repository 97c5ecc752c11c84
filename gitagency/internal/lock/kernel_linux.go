package lock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// writeLock takes the write lock of a file that is open for writing.
func writeLock(f *os.File, wait bool) error {
	err := setOFDLock(f, unix.F_WRLCK, wait)
	if isUnsupported(err) {
		return flockAs(unix.LOCK_EX)(f, wait)
	}
	return err
}

// setOFDLock takes an open file description lock on the whole file, of the type F_RDLCK or F_WRLCK.
func setOFDLock(f *os.File, kind int16, wait bool) error {
	command := unix.F_OFD_SETLK
	if wait {
		command = unix.F_OFD_SETLKW
	}
	return retryInterrupted("lock", f, func(fd int) error {
		return unix.FcntlFlock(uintptr(fd), command, &unix.Flock_t{Type: kind})
	})
}

// conflictingLock returns the type of a lock that conflicts with a lock of the given type; F_UNLCK if there is none.
func conflictingLock(f *os.File, kind int16) (int16, error) {
	var found unix.Flock_t
	err := retryInterrupted("probe lock", f, func(fd int) error {
		found = unix.Flock_t{Type: kind}
		return unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &found)
	})
	return found.Type, err
}

// isUnsupported reports whether the kernel or the file system has no open file description locks.
func isUnsupported(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.EOPNOTSUPP)
}

// isWriteLocked reports whether a process holds the write lock of f. Locks of readers do not count.
func isWriteLocked(f *os.File) (bool, error) {
	found, err := conflictingLock(f, unix.F_RDLCK) // a read lock conflicts with write locks alone
	if isUnsupported(err) {
		return isFlocked(f)
	}
	return found == unix.F_WRLCK, err
}
