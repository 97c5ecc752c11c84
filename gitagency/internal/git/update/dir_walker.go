package update

import (
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// dirWalker opens the directories of a tree one after the other and follows no symlink. An open directory stays the same
// even if another process replaces its name.
type dirWalker struct {
	root  string
	names []string // path components of the open directory
	fds   []int    // descriptors of the root and of each component
	devs  []uint64 // their device numbers
	dev   uint64   // device number of the directory opened last
}

// notDirError reports a path component that is not a directory.
type notDirError struct{ name string }

func (e *notDirError) Error() string { return e.name + " is not a directory" }

func openDirWalker(tree string) (*dirWalker, error) {
	w := &dirWalker{root: tree}
	return w, w.pushDir(unix.AT_FDCWD, tree)
}

func (w *dirWalker) pushDir(at int, name string) error {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path.Join(w.root, path.Join(w.names...), name), Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	w.fds, w.devs, w.dev = append(w.fds, fd), append(w.devs, uint64(st.Dev)), uint64(st.Dev)
	return nil
}

// open returns a descriptor of a directory, "." for the root. It is valid until the next call. It keeps the parents open,
// so opening directories in sorted order is cheap.
func (w *dirWalker) open(dir string) (int, error) {
	var want []string
	if dir != "." {
		want = strings.Split(dir, "/")
	}
	same := 0
	for same < len(want) && same < len(w.names) && want[same] == w.names[same] {
		same++
	}
	w.closeBelow(same)
	for _, name := range want[same:] {
		at := w.fds[len(w.fds)-1]
		if err := w.pushDir(at, name); err != nil {
			var st unix.Stat_t
			if unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
				err = &notDirError{name: path.Join(path.Join(w.names...), name)}
			}
			return -1, err
		}
		w.names = append(w.names, name)
	}
	w.dev = w.devs[len(w.devs)-1]
	return w.fds[len(w.fds)-1], nil
}

// closeBelow closes all directories but the root and the first keep components.
func (w *dirWalker) closeBelow(keep int) {
	for len(w.names) > keep {
		_ = unix.Close(w.fds[len(w.fds)-1])
		w.names, w.fds, w.devs = w.names[:len(w.names)-1], w.fds[:len(w.fds)-1], w.devs[:len(w.devs)-1]
	}
}

func (w *dirWalker) close() {
	w.closeBelow(0)
	for _, fd := range w.fds {
		_ = unix.Close(fd)
	}
	w.fds = nil
}
