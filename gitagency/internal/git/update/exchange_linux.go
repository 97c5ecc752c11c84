package update

import (
	"errors"

	"golang.org/x/sys/unix"
)

// exchangeFiles exchanges two files atomically.
func exchangeFiles(fromDir int, from string, toDir int, to string) error {
	return mapUnsupported(unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_EXCHANGE))
}

// moveNoReplace moves a file, and fails with EEXIST rather than replace another.
func moveNoReplace(fromDir int, from string, toDir int, to string) error {
	err := mapUnsupported(unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE))
	if errors.Is(err, errors.ErrUnsupported) {
		return linkNoReplace(fromDir, from, toDir, to)
	}
	return err
}

// mapUnsupported returns errors.ErrUnsupported for the errors of kernels and file systems without a renameat2 flag.
func mapUnsupported(err error) error {
	if err == unix.EINVAL || err == unix.ENOSYS {
		return errors.ErrUnsupported
	}
	return err
}
