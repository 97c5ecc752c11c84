//go:build !linux

package durable

// AllocBuffer returns a buffer to read a file of this size into.
func AllocBuffer(size int64) []byte { return make([]byte, size) }
