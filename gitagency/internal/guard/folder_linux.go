package guard

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// chmodAt changes the permissions of a directory that need not be one that can be opened, and never those of
// what a link leads to, or of a file that has come to stand there since somebody looked: it may be one that has
// another name elsewhere. So it goes by a handle, of the kind that is good for nothing else.
func chmodAt(dir int, name string, perm uint32) (err error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	err = unix.Fchmodat(fd, "", perm, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) { // before Linux 6.6 there was no such call
		err = unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), perm)
	}
	return err
}

func moveNew(from int, name string, to int) error {
	err := unix.Renameat2(from, name, to, name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // not every file system can
		return renameNew(from, name, to)
	}
	return err
}

func exchange(a int, name string, b int) error {
	return unix.Renameat2(a, name, b, name, unix.RENAME_EXCHANGE)
}
