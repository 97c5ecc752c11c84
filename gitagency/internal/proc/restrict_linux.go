package proc

import "golang.org/x/sys/unix"

// isMainThread reports whether the calling thread is the first one of this process.
func isMainThread() bool { return unix.Gettid() == unix.Getpid() }
