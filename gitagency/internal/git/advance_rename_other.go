//go:build !linux

package git

import "errors"

// exchangeFiles exchanges two files atomically; not supported here.
func swap(int, string, int, string) error { return errors.ErrUnsupported }

// moveNoReplace moves a file, and fails with EEXIST rather than replace another.
func moveTo(fromDir int, from string, toDir int, to string) error {
	return linkTo(fromDir, from, toDir, to)
}

// syncFileSystem is not supported here.
func syncAround(string) error { return errors.ErrUnsupported }
