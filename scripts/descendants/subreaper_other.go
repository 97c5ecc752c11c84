//go:build !linux

package descendants

import "errors"

// Adopt fails.
func Adopt() error { return errors.New("simulated engines need Linux") }
