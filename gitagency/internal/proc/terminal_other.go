//go:build !linux

package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// HasTerminals reports whether this system supports Terminal.
const HasTerminals = false

// Terminal is a pseudo-terminal for a program. It is not supported on this system.
type Terminal struct {
	Slave *os.File
	Moves chan bool
}

// OpenTerminal fails with errors.ErrUnsupported.
func OpenTerminal(*os.File, io.Writer) (*Terminal, error) {
	return nil, fmt.Errorf("create a pseudo-terminal: %w", errors.ErrUnsupported)
}

// OpenOutputTerminal fails with errors.ErrUnsupported.
func OpenOutputTerminal(context.Context, *os.File) (*Terminal, error) { return OpenTerminal(nil, nil) }

func sameTerminal(a, b *os.File) bool { return a == b }

// StartInput does nothing.
func (t *Terminal) StartInput() {}

// Suspend does nothing.
func (t *Terminal) Suspend(syscall.Signal) bool { return true }

// ResetModes does nothing.
func (t *Terminal) ResetModes() {}

// Close does nothing.
func (t *Terminal) Close() error { return nil }
