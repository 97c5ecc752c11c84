//go:build !linux

package proc

import (
	"errors"
	"runtime"
	"syscall"
)

func otherSupervisors() int { return 0 }

// startLimited refuses: a limit that nobody enforces is none.
func startLimited(string, []string, *syscall.ProcAttr, Limits) (int, error) {
	return 0, &limitError{"set limits", errors.New("not on this system: " + runtime.GOOS)}
}
