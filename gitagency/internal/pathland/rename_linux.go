package pathland

import (
	"errors"

	"golang.org/x/sys/unix"
)

// exchange exchanges two files atomically.
func exchange(fromDir int, from string, toDir int, to string) error {
	return renameAt2(fromDir, from, toDir, to, unix.RENAME_EXCHANGE)
}

// move moves a file or directory, and fails with EEXIST rather than replace another.
func move(fromDir int, from string, toDir int, to string) error {
	return renameAt2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE)
}

func renameAt2(fromDir int, from string, toDir int, to string, flags uint) error {
	for {
		err := unix.Renameat2(fromDir, from, toDir, to, flags)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EINVAL || err == unix.ENOSYS:
			return errors.ErrUnsupported
		}
		return err
	}
}
