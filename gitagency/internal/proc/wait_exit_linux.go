package proc

import (
	"time"

	"golang.org/x/sys/unix"
)

// WaitForExit waits until a process has ended, which need not be a child, and at most for a time.
func WaitForExit(pid int, most time.Duration) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil { // it has ended, or the kernel has no pidfd
		time.Sleep(min(most, pollInterval))
		return
	}
	defer unix.Close(fd)
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(most.Milliseconds())) // an interrupt only ends the wait early
}

// pollInterval is how often a process is looked for where its end cannot be waited for.
const pollInterval = 20 * time.Millisecond
