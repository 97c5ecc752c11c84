//go:build !linux

package terminal

import (
	"errors"
	"fmt"
)

// Controlling is the controlling terminal of our session. It is not supported on this system.
type Controlling struct{}

// TakeControl fails with errors.ErrUnsupported.
func TakeControl(int) (*Controlling, error) {
	return nil, fmt.Errorf("set the controlling terminal: %w", errors.ErrUnsupported)
}

// Release does nothing.
func (c *Controlling) Release() {}

// Background does nothing.
func (c *Controlling) Background() {}

// Foreground does nothing.
func (c *Controlling) Foreground(int, bool) {}
