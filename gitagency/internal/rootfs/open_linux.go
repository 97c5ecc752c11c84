package rootfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
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
	f, err := reopen(dir, name, unix.S_IFREG)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = errors.New("it is too large")
	}
	return string(data), err
}

// count counts the entries of a directory of the root file system at dir, up to MaxEntries and one.
func count(dir, name string) (int, error) {
	f, err := reopen(dir, name, unix.S_IFDIR)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	names, err := f.Readdirnames(MaxEntries + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return len(names), err
}

// reopen opens a path of the root file system at dir for reading, if it is of a kind. Nothing else is opened: to open a device may do
// something.
func reopen(dir, name string, kind uint32) (*os.File, error) {
	f, err := openIn(dir, name, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	switch {
	case st.Mode&unix.S_IFMT == kind:
		return os.Open("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	case kind == unix.S_IFDIR:
		return nil, errNoDirectory
	}
	return nil, errors.New("it is not a regular file")
}

// openIn opens a path in the root file system at dir, which no symbolic link, no ".." and no mount in it leaves.
func openIn(dir, name string, flags int) (*os.File, error) {
	top, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(top)
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV}
	for {
		fd, err := unix.Openat2(top, "./"+strings.TrimLeft(name, "/"), &how)
		switch {
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN): // EAGAIN: a rename elsewhere, the kernel cannot tell
			continue
		case err != nil:
			return nil, err
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}
