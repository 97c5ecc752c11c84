package gittest

import (
	"errors"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// SkipWithoutCachestat skips a test if the kernel cannot say which pages of a file wait to be written, or the file system is none on
// which that matters.
func SkipWithoutCachestat(t *testing.T, dir string) {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains([]int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC}, int64(fs.Type)) {
		t.Skip("it needs a file system on a local disk")
	}
	f, err := os.CreateTemp(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var all unix.CachestatRange
	var pages unix.Cachestat_t
	switch err := unix.Cachestat(uint(f.Fd()), &all, &pages, 0); {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		t.Skip("it needs cachestat, which Linux has from 6.5 on")
	case err != nil:
		t.Fatal(err)
	}
}
