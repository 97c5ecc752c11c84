//go:build !linux

package proc

import (
	"errors"
	"runtime"
	"syscall"
)

func countOtherSupervisorThreads() int { return 0 }

// forkExecLimited refuses: a limit that is not enforced must not be accepted.
func forkExecLimited(string, []string, *syscall.ProcAttr, Limits) (int, error) {
	return 0, &limitError{"set limits", errors.New("not on this system: " + runtime.GOOS)}
}
