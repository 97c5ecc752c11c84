//go:build !linux

package confine

import (
	"errors"
	"runtime"
)

var errNoWalls = errors.New("no walls can be built on " + runtime.GOOS)

// Apply builds the walls of p. It needs Linux.
func Raise(Plan) error { return errNoWalls }

// Restrict drops the privileges of the calling thread. It needs Linux.
func Shut(Plan) error { return errNoWalls }

// UnmountOverlays does nothing.
func Clear(Plan) error { return nil }

func ready() {}
