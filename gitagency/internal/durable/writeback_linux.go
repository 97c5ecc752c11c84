package durable

import (
	"os"

	"golang.org/x/sys/unix"
)

// WriteBack makes the kernel write the data of a file to the disk without flushing the disk's cache. The caller makes
// all files durable with one Sync, of any file, after the last WriteBack. On file systems other than ext4 and XFS,
// where one journal does not cover all files, WriteBack is a full fsync.
func WriteBack(f *os.File) error {
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
