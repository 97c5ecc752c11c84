//go:build !linux

package confine

import (
	"errors"
	"runtime"
)

var errWallsUnsupported = errors.New("no walls can be built on " + runtime.GOOS)

// Apply builds the walls of p. It needs Linux.
func Apply(Plan) error { return errWallsUnsupported }

// Restrict drops the privileges of the calling thread. It needs Linux.
func Restrict(Plan) error { return errWallsUnsupported }

// UnmountOverlays does nothing.
func UnmountOverlays(Plan) error { return nil }
