//go:build linux && !amd64 && !arm64

package seccomp

import (
	"errors"
	"runtime"
)

// currentArchitecture reports that this architecture is not supported.
func currentArchitecture() (architecture, error) {
	return architecture{}, errors.New("the system call numbers of " + runtime.GOARCH + " are unknown")
}
