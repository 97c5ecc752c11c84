//go:build !linux

package confine

import (
	"errors"
	"runtime"

	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

var errWallsUnsupported = errors.New("no walls can be built on " + runtime.GOOS)

// Apply builds the walls of p. It needs Linux.
func Apply(walls.Plan) error { return errWallsUnsupported }

// Restrict drops the privileges of the calling thread. It needs Linux.
func Restrict(walls.Plan) error { return errWallsUnsupported }

// UnmountOverlays does nothing.
func UnmountOverlays(walls.Plan) error { return nil }
