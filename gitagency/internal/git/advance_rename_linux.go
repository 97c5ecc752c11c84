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

// syncAround has everything written that is on the file system of a directory.
func syncAround(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Syncfs(fd)
}
