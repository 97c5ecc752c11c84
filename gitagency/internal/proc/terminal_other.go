//go:build !linux

package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// Terminal is a terminal of a program's own. On this system there is none to be had.
type Terminal struct{ Slave *os.File }

// OpenTerminal says that this system is not known well enough.
func OpenTerminal(*os.File, io.Writer) (*Terminal, error) {
	return nil, fmt.Errorf("a terminal of its own: %w", errors.ErrUnsupported)
}

// Relay does nothing.
func (t *Terminal) Relay() {}

// Close does nothing.
func (t *Terminal) Close() error { return nil }
