// Package beneath reads a directory tree in which an untrusted program may rename files and create symlinks at any
// moment. Everything is opened relative to the descriptor of the top directory, in one step that follows no symlink at
// any level, never blocks on a FIFO and never opens a device. A file is described by the descriptor that was opened, not
// by looking its name up again.
//
// Such a tree may consist of the layers of an overlay, which is mounted elsewhere or not at all: see OpenLayers.
//
// It never writes.
package beneath

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is an open directory. Names are relative to it, clean, and separated by slashes; "." is the directory itself. A Dir
// is not safe for concurrent use: it keeps the directory that was used last open, because names mostly come sorted.
type Dir struct {
	path   string
	fd     int
	last   string // directory that lastFD is; "" for none
	lastFD int
	layers *layers // of a Dir of OpenLayers, whose first descriptor is fd; else nil
	deep   bool    // names may be longer than PATH_MAX
}

// NotRegularError reports something else than a regular file where one was to be opened.
type NotRegularError struct {
	Path string
	Mode fs.FileMode
}

func (e *NotRegularError) Error() string { return e.Path + " is not a regular file" }

// IsGone reports whether an error means that a name no longer leads to what it was listed as: it is missing, or something
// else or a symlink has taken its place or that of a parent directory.
func IsGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY

// Open opens a directory, whose path must not end in a symlink.
func Open(dir string) (*Dir, error) {
	fd, err := unix.Open(dir, dirFlags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return &Dir{path: dir, fd: fd}, nil
}

// OpenDeep is Open for a directory in which names may be longer than PATH_MAX. Git and most programs cannot use such names.
func OpenDeep(dir string) (*Dir, error) {
	d, err := Open(dir)
	if err == nil {
		d.deep = true
	}
	return d, err
}

// Close closes the directory. Every call after the first does nothing: the number of the descriptor may be in use again.
func (d *Dir) Close() error {
	if d.fd < 0 {
		return nil
	}
	fd := d.fd
	d.fd = -1
	if d.layers != nil {
		return d.layers.close()
	}
	return errors.Join(d.forget(), os.NewSyscallError("close", unix.Close(fd)))
}

// Join returns the path of a name, for messages only: a moment later it may lead elsewhere.
func (d *Dir) Join(name string) string { return filepath.Join(d.path, name) }

// forget closes the directory that was used last.
func (d *Dir) forget() error {
	if d.last == "" {
		return nil
	}
	d.last = ""
	return os.NewSyscallError("close", unix.Close(d.lastFD))
}

// Lstat returns the metadata of a file or symlink.
func (d *Dir) Lstat(name string, st *unix.Stat_t) error {
	return d.callAt("stat", name, func(dir int, base string) error {
		return unix.Fstatat(dir, base, st, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// Kind returns the type of a file or symlink.
func (d *Dir) Kind(name string) (fs.FileMode, error) {
	var st unix.Stat_t
	err := d.Lstat(name, &st)
	return kindOf(uint32(st.Mode)), err
}

// OpenFile opens a regular file for reading and returns its metadata. The error is a *NotRegularError for anything else,
// a symlink included.
func (d *Dir) OpenFile(name string) (*os.File, unix.Stat_t, error) {
	fd, st, err := d.openRegular(name)
	if err != nil {
		return nil, st, err
	}
	return os.NewFile(uintptr(fd), d.Join(name)), st, nil
}

// ReadFile reads a regular file of at most limit bytes, with fewer system calls than OpenFile and os.File need. The content is
// nil if the file is larger. If it is shorter than its metadata say, it was truncated meanwhile.
func (d *Dir) ReadFile(name string, limit int64) ([]byte, unix.Stat_t, error) {
	fd, st, err := d.openRegular(name)
	if err != nil {
		return nil, st, err
	}
	defer unix.Close(fd)
	if st.Size > limit {
		return nil, st, nil
	}
	content := make([]byte, st.Size)
	for at := 0; at < len(content); {
		n, err := unix.Read(fd, content[at:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, st, &fs.PathError{Op: "read", Path: d.Join(name), Err: err}
		case n == 0:
			return content[:at], st, nil
		}
		at += n
	}
	return content, st, nil
}

// openRegular returns the descriptor of a regular file, open for reading, and its metadata.
func (d *Dir) openRegular(name string) (fd int, st unix.Stat_t, err error) {
	err = d.callAt("open", name, func(dir int, base string) (err error) {
		fd, err = unix.Openat(dir, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EOPNOTSUPP) { // a symlink, a socket
			return &NotRegularError{Path: d.Join(name), Mode: fs.ModeIrregular}
		}
		return err
	})
	if err != nil {
		return -1, st, err
	}
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = &NotRegularError{Path: d.Join(name), Mode: kindOf(uint32(st.Mode))}
	}
	if err != nil {
		return -1, st, errors.Join(err, os.NewSyscallError("close", unix.Close(fd)))
	}
	return fd, st, nil
}

// Readlink returns the target of a symlink; the error is EINVAL for anything else.
func (d *Dir) Readlink(name string) (target string, err error) {
	const room = 4096 // PATH_MAX, which also bounds the target of a symlink
	err = d.callAt("readlink", name, func(dir int, base string) error {
		buffer := make([]byte, room)
		n, err := unix.Readlinkat(dir, base, buffer)
		if err == nil {
			target = string(buffer[:n])
		}
		return err
	})
	return target, err
}

// Entry is a name in a directory.
type Entry struct {
	Name string
	Kind fs.FileMode // type bits
}

// ReadDir lists a directory and returns its metadata from before it was listed. With layers, these are the metadata in the
// topmost layer that has it.
func (d *Dir) ReadDir(name string) ([]Entry, unix.Stat_t, error) {
	var st unix.Stat_t
	if d.layers != nil {
		return d.layers.readDir(name, d.Join(name))
	}
	fd, err := d.open(name)
	if err != nil {
		return nil, st, &fs.PathError{Op: "open", Path: d.Join(name), Err: err}
	}
	dir := os.NewFile(uintptr(fd), d.Join(name))
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, st, errors.Join(&fs.PathError{Op: "stat", Path: d.Join(name), Err: err}, dir.Close())
	}
	found, err := dir.ReadDir(-1)
	entries := make([]Entry, len(found))
	for i, e := range found {
		entries[i] = Entry{Name: e.Name(), Kind: e.Type()}
	}
	return entries, st, errors.Join(err, dir.Close())
}

// callAt calls do with the descriptor of the directory that contains name, and the last component of name.
func (d *Dir) callAt(op, name string, do func(dir int, base string) error) error {
	dir, base := path.Split(name)
	err := d.call(strings.TrimSuffix(dir, "/"), base, func(dir int, base string) (err error) {
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = do(dir, base)
		}
		return err
	})
	if err == nil || errors.As(err, new(*NotRegularError)) {
		return err
	}
	return &fs.PathError{Op: op, Path: d.Join(name), Err: err}
}

// call calls do once, with the descriptor of a directory.
func (d *Dir) call(dir, base string, do func(dir int, base string) error) error {
	if d.layers != nil {
		return d.layers.callAt(dir, base, do)
	}
	if err := d.enter(dir); err != nil {
		return err
	}
	if d.last != "" {
		return do(d.lastFD, base)
	}
	return do(d.fd, base)
}

// enter opens a directory and keeps it open as the last one; "" is the top directory.
func (d *Dir) enter(dir string) error {
	if dir == d.last {
		return nil
	}
	if err := d.forget(); err != nil || dir == "" {
		return err
	}
	fd, err := d.open(dir)
	if err != nil {
		return err
	}
	d.last, d.lastFD = dir, fd
	return nil
}

// open opens a directory below d.
func (d *Dir) open(name string) (int, error) {
	fd, err := openBeneath(d.fd, name, dirFlags)
	if d.deep && errors.Is(err, unix.ENAMETOOLONG) {
		return openByComponents(d.fd, name, dirFlags)
	}
	return fd, err
}

// openByComponents opens a path below a directory component by component, and follows no symlink.
func openByComponents(top int, name string, flags int) (int, error) {
	at := top
	for left := name; ; {
		component, rest, more := strings.Cut(left, "/")
		if component == ".." || component == "" {
			return -1, unix.EXDEV
		}
		how := flags
		if more {
			how = dirFlags
		}
		fd, err := unix.Openat(at, component, how|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if at != top {
			err = errors.Join(err, unix.Close(at))
		}
		if err != nil || !more {
			return fd, err
		}
		at, left = fd, rest
	}
}

func kindOf(mode uint32) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	}
	return fs.ModeDevice
}
