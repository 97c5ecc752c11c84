//go:build !linux

package durable

// Memory is where a file is read to.
func Memory(size int64) []byte { return make([]byte, size) }
