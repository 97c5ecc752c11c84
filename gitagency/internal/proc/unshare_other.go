//go:build !linux

package proc

import (
	"errors"
	"fmt"
	"syscall"
)

func (n *Unshare) setSysProcAttr(*syscall.SysProcAttr) error {
	return fmt.Errorf("namespaces: %w", errors.ErrUnsupported)
}
