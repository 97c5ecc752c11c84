package status

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// dirWatch records with inotify which names come and go in some directories. Watching a whole worktree takes longer
// than scanning it twice; but two scans cannot tell which names came and went in between, as when programs write
// ignored files.
type dirWatch struct {
	fd   int
	dirs map[int32]string
}

// hasInotify tells that a dirWatch can name what came and went in a directory that changed in the last clock tick.
// Without inotify such a directory is taken for unchanged.
const hasInotify = true

// watchDirs starts watching directories of a worktree. It returns nil when there are none, or inotify fails.
func watchDirs(tree string, dirs []string) *dirWatch {
	if len(dirs) == 0 {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil
	}
	w := &dirWatch{fd: fd, dirs: map[int32]string{}}
	for _, dir := range dirs {
		const names = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
		wd, err := unix.InotifyAddWatch(fd, filepath.Join(tree, dir), names)
		if err != nil {
			w.close()
			return nil
		}
		w.dirs[int32(wd)] = filepath.Clean(dir)
	}
	return w
}

// covers reports whether all of these directories are watched.
func (w *dirWatch) covers(dirs []string) bool {
	if w == nil {
		return false
	}
	have := map[string]bool{}
	for _, dir := range w.dirs {
		have[dir] = true
	}
	return !slices.ContainsFunc(dirs, func(dir string) bool { return !have[filepath.Clean(dir)] })
}

// changedNames returns the names that came or went since, directories with a trailing slash. It is not ok when events
// were lost.
func (w *dirWatch) changedNames() (names []string, ok bool) {
	const header, missed = 16, unix.IN_Q_OVERFLOW | unix.IN_IGNORED | unix.IN_UNMOUNT
	buffer := make([]byte, 64<<10)
	for {
		n, err := unix.Read(w.fd, buffer)
		if err == unix.EINTR {
			continue
		}
		if err == unix.EAGAIN {
			slices.Sort(names)
			return slices.Compact(names), true
		}
		if err != nil || n == 0 {
			return nil, false
		}
		for left := buffer[:n]; len(left) >= header; {
			wd, mask := int32(binary.NativeEndian.Uint32(left)), binary.NativeEndian.Uint32(left[4:])
			end := header + int(binary.NativeEndian.Uint32(left[12:]))
			text := left[header:end]
			left = left[end:]
			if mask&missed != 0 {
				return nil, false
			}
			if zero := bytes.IndexByte(text, 0); zero >= 0 {
				text = text[:zero]
			}
			name := filepath.Join(w.dirs[wd], string(text))
			if mask&unix.IN_ISDIR != 0 {
				name += "/"
			}
			names = append(names, name)
		}
	}
}

func (w *dirWatch) close() {
	if w != nil {
		_ = unix.Close(w.fd)
	}
}
