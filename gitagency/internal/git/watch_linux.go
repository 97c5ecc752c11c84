package git

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// watch hears which names come and go in some directories. To watch all of a tree takes longer than to look at it twice;
// but two looks cannot tell what comes and goes in between, as when programs write files that are ignored.
type watch struct {
	fd   int
	dirs map[int32]string
}

// canWatch: where nobody can be listened to, what changed a moment ago has to be believed.
const canWatch = true

// watchDirs begins to listen; it returns nil where that is of no use, or cannot be done.
func watchDirs(tree string, dirs []string) *watch {
	if len(dirs) == 0 {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil
	}
	w := &watch{fd: fd, dirs: map[int32]string{}}
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

// covers reports whether all of these directories are listened to.
func (w *watch) covers(dirs []string) bool {
	if w == nil {
		return false
	}
	have := map[string]bool{}
	for _, dir := range w.dirs {
		have[dir] = true
	}
	return !slices.ContainsFunc(dirs, func(dir string) bool { return !have[filepath.Clean(dir)] })
}

// names lists what has come or gone since, with a slash behind directories. It is not ok when something was missed.
func (w *watch) names() (names []string, ok bool) {
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

func (w *watch) close() {
	if w != nil {
		_ = unix.Close(w.fd)
	}
}
