//go:build !linux

package lock

import (
	"os"

	"golang.org/x/sys/unix"
)

// writeLock takes the write lock of a file. This system has no open file description locks.
func writeLock(f *os.File, wait bool) error { return flockAs(unix.LOCK_EX)(f, wait) }

// isWriteLocked reports whether a process holds the lock of f.
func isWriteLocked(f *os.File) (bool, error) { return isFlocked(f) }

// replaceIfReadLocked does nothing: an flock of a reader cannot be told from that of a writer.
func replaceIfReadLocked(*os.File) (*os.File, error) { return nil, nil }
