package durable

import (
	"os"

	"golang.org/x/sys/unix"
)

// WriteOut has the kernel write a file to the disk, without waiting for the disk to have it for good: that takes one
// Sync more, of any file, after all of them.
func WriteOut(f *os.File) error {
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	if err := unix.SyncFileRange(int(f.Fd()), 0, 0, all); err != nil {
		return f.Sync() // not every file system can
	}
	return nil
}
