//go:build !linux

package proc

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

func countOtherSupervisorThreads() int { return 0 }

// forkExecLimited refuses: a limit that is not enforced must not be accepted.
func forkExecLimited(string, []string, *syscall.ProcAttr, Limits) (int, error) {
	return 0, &limitError{"set limits", errors.New("not on this system: " + runtime.GOOS)}
}

// limitStarted does nothing: the limits of a command guard against data from behind walls, which this system lacks.
func (l Limits) limitStarted(int) error { return nil }

// maxRSS returns 0, for unknown.
func maxRSS(*os.ProcessState) int64 { return 0 }
