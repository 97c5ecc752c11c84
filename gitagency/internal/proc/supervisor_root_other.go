//go:build !linux

package proc

import "errors"

// enterRoot refuses: there are no namespaces, and so no other root.
func (s *supervisor) enterRoot() error { return errors.ErrUnsupported }
