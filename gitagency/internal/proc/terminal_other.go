//go:build !linux

package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// Terminal is a pseudo-terminal for a program. It is not supported on this system.
type Terminal struct{ Slave *os.File }

// OpenTerminal fails with errors.ErrUnsupported.
func OpenTerminal(*os.File, io.Writer) (*Terminal, error) {
	return nil, fmt.Errorf("create a pseudo-terminal: %w", errors.ErrUnsupported)
}

// StartInput does nothing.
func (t *Terminal) StartInput() {}

// Close does nothing.
func (t *Terminal) Close() error { return nil }
