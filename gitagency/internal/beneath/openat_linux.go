package beneath

import (
	"errors"

	"golang.org/x/sys/unix"
)

// openBeneath opens a path below a directory, and follows no symlink. Kernels before 5.6, and some containers, have no
// openat2.
func openBeneath(top int, name string, flags int) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_NOFOLLOW | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(top, name, &how)
		switch {
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN): // EAGAIN: a rename elsewhere, the kernel cannot tell
			continue
		case errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM):
			return openByComponents(top, name, flags)
		}
		return fd, err
	}
}
