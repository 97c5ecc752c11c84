//go:build !linux

package durable

import "os"

// WriteBack fsyncs a file: only Linux can write the data back without a flush.
func WriteBack(f *os.File) error { return f.Sync() }
