//go:build !linux

package main

import "errors"

func skipSyncs() error { return errors.ErrUnsupported }
