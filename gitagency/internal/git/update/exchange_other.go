//go:build !linux

package update

import "errors"

// exchangeFiles exchanges two files atomically; not supported here.
func exchangeFiles(int, string, int, string) error { return errors.ErrUnsupported }

// moveNoReplace moves a file, and fails with EEXIST rather than replace another.
func moveNoReplace(fromDir int, from string, toDir int, to string) error {
	return linkNoReplace(fromDir, from, toDir, to)
}
