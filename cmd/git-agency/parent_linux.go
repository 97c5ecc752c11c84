package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// withParent ends the context when the git that started us as "git agency" is gone: whoever kills what he
// started has killed that git, and does not know of us.
func withParent(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := func() { cancel(nil) }
	parent := os.Getppid()
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent))
	if err != nil || strings.TrimSpace(string(name)) != "git" {
		return ctx, stop
	}
	fd, err := unix.PidfdOpen(parent, 0)
	if err != nil { // an older kernel
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
