//go:build !linux

package durable

import "os"

// WriteOut writes a file to the disk. Elsewhere that can be done by halves.
func WriteOut(f *os.File) error { return f.Sync() }
