//go:build !linux

package durable

// Room is memory for a file.
func Room(size int64) []byte { return make([]byte, size) }
