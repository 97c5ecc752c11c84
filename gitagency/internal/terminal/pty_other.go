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

// Host keeps a terminal for a program. It is not supported on this system.
type Host struct{ Slave *os.File }

// OpenHost fails with errors.ErrUnsupported.
func OpenHost(string, io.Writer) (*Host, error) {
	return nil, fmt.Errorf("keep a terminal: %w", errors.ErrUnsupported)
}

// Close does nothing.
func (h *Host) Close() error { return nil }

// Attach fails with errors.ErrUnsupported.
func Attach(context.Context, AttachRequest) (bool, error) {
	return false, fmt.Errorf("attach to a terminal: %w", errors.ErrUnsupported)
}

// WatchKeys watches no keys: signals of the terminal end what it would.
func WatchKeys(parent context.Context, _ *os.File, _ []byte) (context.Context, func() error, error) {
	return parent, func() error { return nil }, nil
}
