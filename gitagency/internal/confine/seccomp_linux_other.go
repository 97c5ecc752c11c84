//go:build linux && !amd64 && !arm64

package confine

import (
	"errors"
	"runtime"
)

// currentArchitecture reports that this architecture is not supported.
func currentArchitecture() (architecture, error) {
	return architecture{}, errors.New("the numbers of the system calls of " + runtime.GOARCH + " are not known here")
}
