//go:build !linux

package confine

import (
	"errors"
	"runtime"
)

var errNoWalls = errors.New("no walls can be built on " + runtime.GOOS)

// Raise builds what p says around this process. Only Linux has what that needs.
func Raise(Plan) error { return errNoWalls }

// Shut takes from the calling thread every power that is left inside the walls of p. Only Linux has what
// that needs.
func Shut(Plan) error { return errNoWalls }

// Clear has nothing to take down.
func Clear(Plan) error { return nil }

func ready() {}
