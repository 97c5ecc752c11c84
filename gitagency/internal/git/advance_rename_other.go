//go:build !linux

package git

import "errors"

// swap has two files change places, at once; here it cannot be done.
func swap(int, string, int, string) error { return errors.ErrUnsupported }

// moveTo moves a file to where nothing is.
func moveTo(fromDir int, from string, toDir int, to string) error {
	return linkTo(fromDir, from, toDir, to)
}

// syncAround cannot be done here.
func syncAround(string) error { return errors.ErrUnsupported }
