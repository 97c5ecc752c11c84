//go:build !linux

package durable

import "errors"

// SyncFileSystem is not supported here.
func SyncFileSystem(string) error { return errors.ErrUnsupported }
