//go:build !linux

package main

import "errors"

// stamps are not told here.
func stamps(string) (map[string]stamp, error) { return nil, errors.ErrUnsupported }
