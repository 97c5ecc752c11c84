//go:build !linux

package proc

// isMainThread reports false: nothing can be restricted here.
func isMainThread() bool { return false }
