//go:build !linux

package proc

import (
	"errors"
	"fmt"
	"syscall"
)

func (n *Namespaces) ask(*syscall.SysProcAttr) error {
	return fmt.Errorf("namespaces: %w", errors.ErrUnsupported)
}
