package durable

import (
	"os"

	"golang.org/x/sys/unix"
)

// WriteOut has the kernel write a file to the disk, without waiting for the disk to have it for good: that takes one
// Sync more, of any file, after all of them. It is only done by halves where one journal has it all.
func WriteOut(f *os.File) error {
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return f.Sync()
	}
	journaled := int64(st.Type) == unix.EXT4_SUPER_MAGIC || int64(st.Type) == unix.XFS_SUPER_MAGIC
	if !journaled || unix.SyncFileRange(int(f.Fd()), 0, 0, all) != nil {
		return f.Sync()
	}
	return nil
}
