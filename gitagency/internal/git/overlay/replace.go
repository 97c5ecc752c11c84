package overlay

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ReplaceUpperFile replaces a file in a directory of the upper directory, without following symlinks.
func ReplaceUpperFile(upper, in, name string, data []byte) (err error) {
	dir, err := OpenDirAt(unix.AT_FDCWD, upper)
	if err != nil {
		return &fs.PathError{Op: "open", Path: upper, Err: err}
	}
	defer func() { unix.Close(dir) }()
	for part := range strings.SplitSeq(in, "/") {
		next, err := OpenDirAt(dir, part)
		if err != nil {
			return &fs.PathError{Op: "open", Path: filepath.Join(upper, in), Err: err}
		}
		unix.Close(dir)
		dir = next
	}
	fresh := name + "." + rand.Text()
	fd, err := unix.Openat(dir, fresh, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return &fs.PathError{Op: "create", Path: filepath.Join(upper, in, fresh), Err: err}
	}
	f := os.NewFile(uintptr(fd), filepath.Join(upper, in, fresh))
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = unix.Renameat(dir, fresh, dir, name)
	}
	if err != nil {
		return errors.Join(err, unix.Unlinkat(dir, fresh, 0))
	}
	return nil
}
