package proc

import (
	"os"

	"golang.org/x/sys/unix"
)

// enterRoot changes the root directory and the current one of the calling thread, which is locked to its goroutine and ends
// with it, and of the programs that it starts. A program cannot go back: only a process with capabilities can change its
// root, and nothing outside of the root is open in it.
func (s *supervisor) enterRoot() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Chroot(string(s.order.Root)); err != nil {
		return &os.PathError{Op: "chroot", Path: string(s.order.Root), Err: err}
	}
	return s.chdirVerified()
}
