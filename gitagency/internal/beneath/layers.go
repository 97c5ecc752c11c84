package beneath

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// layers are the directories of an overlay, which are read as overlayfs shows them where it is mounted: directories of the
// same name merge; anything else hides what is below it; a whiteout is not listed; an opaque directory does not merge.
//
// Every component of a name is looked up in all layers. So symlinks are followed in none, and a name that changes in the
// upper directory meanwhile leads to a file of some layer, or to none.
type layers struct {
	fds  []int  // descriptors of the layers, the top one first
	last []int  // descriptors of the directory that was used last, in the layers that have it; nil for none
	name string // its name
}

// OpenLayers opens directories, the top one first, as one that shows what an overlayfs of them would. Messages name files
// below the path shown. The paths must not end in a symlink.
func OpenLayers(shown string, dirs ...string) (*Dir, error) {
	l := &layers{}
	for _, dir := range dirs {
		top, err := Open(dir)
		if err != nil {
			return nil, errors.Join(err, closeAll(l.fds))
		}
		l.fds = append(l.fds, top.fd)
	}
	if len(l.fds) == 0 {
		return nil, &fs.PathError{Op: "open", Path: shown, Err: errors.New("no layers")}
	}
	return &Dir{path: shown, fd: l.fds[0], layers: l}, nil
}

func closeAll(fds []int) error {
	var errs []error
	for _, fd := range fds {
		errs = append(errs, os.NewSyscallError("close", unix.Close(fd)))
	}
	return errors.Join(errs...)
}

func (l *layers) close() error { return errors.Join(l.forget(), closeAll(l.fds)) }

// forget closes the directory that was used last.
func (l *layers) forget() error {
	fds := l.last
	l.last, l.name = nil, ""
	return closeAll(fds)
}

// callAt calls do for the file that a name in a directory shows: with the directory of the layer that has it.
func (l *layers) callAt(dir, base string, do func(dir int, base string) error) error {
	if base == ".." {
		return unix.EXDEV
	}
	at, err := l.enter(dir)
	if err != nil {
		return err
	}
	for _, fd := range at {
		var st unix.Stat_t
		err := fstatat(fd, base, &st)
		switch {
		case errors.Is(err, unix.ENOENT):
			continue
		case err != nil:
			return err
		case IsWhiteout(&st):
			return unix.ENOENT
		}
		return do(fd, base)
	}
	return unix.ENOENT
}

// enter returns the descriptors of a directory in the layers that have it, and keeps them open; "" is the top directory.
func (l *layers) enter(dir string) ([]int, error) {
	if dir == "" {
		return l.fds, nil
	}
	if l.last != nil && dir == l.name {
		return l.last, nil
	}
	if err := l.forget(); err != nil {
		return nil, err
	}
	fds, err := l.open(dir)
	if err == nil {
		l.last, l.name = fds, dir
	}
	return fds, err
}

// open opens a directory in the layers that have it.
func (l *layers) open(name string) ([]int, error) {
	at := l.fds
	for left, more := name, true; more; {
		var component string
		component, left, more = strings.Cut(left, "/")
		if component == ".." || component == "" {
			return nil, errors.Join(unix.EXDEV, l.closeBelow(at))
		}
		next, err := openComponent(at, component)
		if err := errors.Join(err, l.closeBelow(at)); err != nil {
			return nil, errors.Join(err, closeAll(next))
		}
		at = next
	}
	return at, nil
}

// closeBelow closes descriptors, unless they are those of the layers themselves.
func (l *layers) closeBelow(at []int) error {
	if at[0] == l.fds[0] {
		return nil
	}
	return closeAll(at)
}

// openComponent opens a directory in those of some directories, one above the other, that have and show it.
func openComponent(at []int, name string) (found []int, err error) {
	for i, dir := range at {
		fd, err := openRetrying(dir, name)
		switch {
		case errors.Is(err, unix.ENOENT):
			continue
		case (errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)) && len(found) > 0:
			return found, nil // it is hidden, and hides what is below it
		case err != nil:
			var st unix.Stat_t
			if fstatat(dir, name, &st) == nil && IsWhiteout(&st) {
				err = unix.ENOENT
			}
			return nil, errors.Join(err, closeAll(found))
		}
		found = append(found, fd)
		if i < len(at)-1 && name != "." && OverlayXattr(fd, "opaque") == "y" {
			break
		}
	}
	if len(found) == 0 {
		return nil, unix.ENOENT
	}
	return found, nil
}

func openRetrying(dir int, name string) (fd int, err error) {
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		fd, err = unix.Openat(dir, name, dirFlags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	return fd, err
}

func fstatat(dir int, name string, st *unix.Stat_t) (err error) {
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Fstatat(dir, name, st, unix.AT_SYMLINK_NOFOLLOW)
	}
	return err
}

// readDir lists a directory, whose path is for messages, and returns the metadata of its topmost layer.
func (l *layers) readDir(name, path string) (entries []Entry, st unix.Stat_t, err error) {
	fds, err := l.open(name)
	if err != nil {
		return nil, st, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	seen := map[string]bool{}
	for i, fd := range fds {
		layer, readErr := readLayer(fd, path) // closes it
		if i == 0 {
			st = layer.Stat
		}
		err = errors.Join(err, readErr)
		for _, e := range layer.Entries {
			if !seen[e.Name] {
				entries = append(entries, e)
			}
			seen[e.Name] = true
		}
		for _, hidden := range layer.Whiteouts {
			seen[hidden] = true
		}
	}
	return entries, st, err
}

// Layer is the content of a directory in one layer of an overlay.
type Layer struct {
	Entries   []Entry
	Whiteouts []string    // names that are hidden in the layers below
	IsOpaque  bool        // the directory does not merge with those below it
	Stat      unix.Stat_t // metadata from before it was listed
}

// ReadLayer lists a directory of d, which is one layer of an overlay.
func (d *Dir) ReadLayer(name string) (Layer, error) {
	fd, err := d.open(name)
	if err != nil {
		return Layer{}, &fs.PathError{Op: "open", Path: d.Join(name), Err: err}
	}
	return readLayer(fd, d.Join(name))
}

// readLayer lists a directory in one layer, and closes it. Its file system must list the types of files, as overlayfs demands.
func readLayer(fd int, path string) (l Layer, err error) {
	dir := os.NewFile(uintptr(fd), path)
	defer func() { err = errors.Join(err, dir.Close()) }()
	if err := unix.Fstat(fd, &l.Stat); err != nil {
		return l, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	l.IsOpaque = OverlayXattr(fd, "opaque") == "y"
	found, err := dir.ReadDir(-1)
	for _, e := range found {
		var st unix.Stat_t
		if e.Type()&fs.ModeCharDevice != 0 && fstatat(fd, e.Name(), &st) == nil && IsWhiteout(&st) {
			l.Whiteouts = append(l.Whiteouts, e.Name())
			continue
		}
		l.Entries = append(l.Entries, Entry{Name: e.Name(), Kind: e.Type()})
	}
	return l, err
}
