package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// cancelOnParentExit cancels the context when the git process that started us as "git agency" exits. A caller that
// kills the process it started kills that git and does not know our process id.
func cancelOnParentExit(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := func() { cancel(nil) }
	parent := os.Getppid()
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent))
	if err != nil || strings.TrimSpace(string(name)) != "git" {
		return ctx, stop
	}
	fd, err := unix.PidfdOpen(parent, 0)
	if err != nil { // kernel without pidfd_open
		return ctx, stop
	}
	go func() {
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if err == nil {
				cancel(interruptedError{syscall.SIGTERM})
			}
			if err != unix.EINTR {
				return
			}
		}
	}()
	return ctx, stop
}
