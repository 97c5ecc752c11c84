//go:build !linux

package seccomp

// Prepare does nothing: only Linux has filters.
func Prepare() {}
