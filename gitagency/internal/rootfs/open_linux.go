package rootfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// open returns what a path leads to in the root file system at dir.
func open(dir, name string) (fs.FileInfo, error) {
	f, err := openIn(dir, name, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Stat()
}

// readFile reads a regular file of the root file system at dir, unless it is longer than limit.
func readFile(dir, name string, limit int64) (string, error) {
	f, err := openIn(dir, name, unix.O_RDONLY|unix.O_NONBLOCK) // NONBLOCK: a pipe would wait for a writer
	if err != nil {
		return "", err
	}
	defer f.Close()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case !fi.Mode().IsRegular():
		return "", errors.New("it is not a regular file")
	case fi.Size() > limit:
		return "", errors.New("it is too large")
	}
	data, err := io.ReadAll(io.LimitReader(f, limit))
	return string(data), err
}

// openIn opens a path in the root file system at dir, which no symbolic link and no ".." leaves.
func openIn(dir, name string, flags int) (*os.File, error) {
	top, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(top)
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(top, strings.TrimLeft(name, "/"), &how)
		switch {
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN): // EAGAIN: a rename elsewhere, the kernel cannot tell
			continue
		case err != nil:
			return nil, err
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}
