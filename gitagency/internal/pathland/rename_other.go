//go:build !linux

package pathland

import "errors"

// exchange exchanges two files atomically; not supported here.
func exchange(int, string, int, string) error { return errors.ErrUnsupported }

// move moves a file, and fails rather than replace another; not supported here.
func move(int, string, int, string) error { return errors.ErrUnsupported }
