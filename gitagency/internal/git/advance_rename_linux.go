package git

import (
	"errors"

	"golang.org/x/sys/unix"
)

// swap has two files change places, at once.
func swap(fromDir int, from string, toDir int, to string) error {
	return unsupported(unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_EXCHANGE))
}

// moveTo moves a file to where nothing is.
func moveTo(fromDir int, from string, toDir int, to string) error {
	err := unsupported(unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE))
	if errors.Is(err, errors.ErrUnsupported) {
		return linkTo(fromDir, from, toDir, to)
	}
	return err
}

func unsupported(err error) error {
	if err == unix.EINVAL || err == unix.ENOSYS {
		return errors.ErrUnsupported
	}
	return err
}
