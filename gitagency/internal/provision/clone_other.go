//go:build !linux

package provision

import (
	"errors"
	"os"
)

func cloneFile(_, _ *os.File) error { return errors.ErrUnsupported }
