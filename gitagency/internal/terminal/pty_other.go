//go:build !linux

package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Supported reports whether this system supports PTY.
const Supported = false

// PTY is a pseudo-terminal for a program. It is not supported on this system.
type PTY struct {
	Slave *os.File
	Moves <-chan bool
}

// Open fails with errors.ErrUnsupported.
func Open(*os.File, io.Writer) (*PTY, error) {
	return nil, fmt.Errorf("create a pseudo-terminal: %w", errors.ErrUnsupported)
}

// OpenOutput fails with errors.ErrUnsupported.
func OpenOutput(context.Context, *os.File) (*PTY, error) { return Open(nil, nil) }

func Same(a, b *os.File) bool { return a == b }

// StartInput does nothing.
func (p *PTY) StartInput() {}

// Suspend does nothing.
func (p *PTY) Suspend(syscall.Signal) bool { return true }

// ResetModes does nothing.
func (p *PTY) ResetModes() {}

// Close does nothing.
func (p *PTY) Close() error { return nil }
