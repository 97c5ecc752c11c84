package guard

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// chmodAt changes the permissions of a directory that need not be one that can be opened, and never those of
// what a link leads to.
func chmodAt(dir int, name string, perm uint32) error {
	err := unix.Fchmodat(dir, name, perm, unix.AT_SYMLINK_NOFOLLOW)
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	// Before Linux 6.6 there was no such call, but a handle that is good for nothing else.
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), perm), unix.Close(fd))
}
