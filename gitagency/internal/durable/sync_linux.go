package durable

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// SyncFileSystem writes all dirty data of a directory's file system to disk. For many files this is faster than an fsync of each.
func SyncFileSystem(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	if err := unix.Syncfs(fd); err != nil {
		return &fs.PathError{Op: "sync the file system of", Path: dir, Err: err}
	}
	return nil
}
