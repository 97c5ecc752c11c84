//go:build !linux

package main

import "errors"

// fileStamps is not supported on this system.
func fileStamps(string) (map[string]fileStamp, error) { return nil, errors.ErrUnsupported }
