package durable

import "golang.org/x/sys/unix"

// HasKernelTimes reports whether the ctimes of a file system are set by the clock of this kernel. Others may be those of a server, or
// be set by programs, as on many network file systems.
func HasKernelTimes(fs *unix.Statfs_t) bool {
	switch int64(fs.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.F2FS_SUPER_MAGIC:
		return true
	}
	return false
}

// IsWritten reports whether all data of a file is on a local disk. Then each later write gives the file a later ctime. Before,
// a page that a program has mapped can change any number of times without another ctime until the kernel writes it; on tmpfs,
// always. It needs Linux 6.5, and reports false where it cannot know.
func IsWritten(file int) bool {
	var fs unix.Statfs_t
	if unix.Fstatfs(file, &fs) != nil || !HasKernelTimes(&fs) || int64(fs.Type) == unix.TMPFS_MAGIC {
		return false
	}
	var all unix.CachestatRange
	var pages unix.Cachestat_t
	err := unix.Cachestat(uint(file), &all, &pages, 0)
	return err == nil && pages.Dirty == 0 && pages.Writeback == 0
}
