package interrupt

import (
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// OnParentExit cancels the context with a cause when the git process that started us as "git agency" exits. A caller that
// kills the process it started kills that git and does not know our process id.
func OnParentExit(ctx context.Context, cause error) (context.Context, func()) {
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
				ignoreOutputStops()
				cancel(cause)
			}
			if err != unix.EINTR {
				return
			}
		}
	}()
	return ctx, stop
}
