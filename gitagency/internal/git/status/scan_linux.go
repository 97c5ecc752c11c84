package status

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"golang.org/x/sys/unix"
)

// readNames reads the names in a directory, sorted. It calls getdents directly: most directories are small, and
// creating an os.File for each takes longer than reading it.
func (l *scanWorker) readNames(fd int, path string) error {
	const room, nameAt, kindAt, lengthAt = 32 << 10, 19, 18, 16 // buffer size, and offsets in struct linux_dirent64
	if l.buffer == nil {
		l.buffer = make([]byte, room)
	}
	l.names = l.names[:0]
	for {
		n, err := unix.Getdents(fd, l.buffer)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "read", Path: path + ".", Err: err}
		}
		if n <= 0 {
			break
		}
		for left := l.buffer[:n]; len(left) > nameAt; {
			length := binary.NativeEndian.Uint16(left[lengthAt:])
			text := left[nameAt:length]
			text = text[:bytes.IndexByte(text, 0)]
			kind, inode := left[kindAt], binary.NativeEndian.Uint64(left)
			left = left[length:]
			if inode == 0 || string(text) == "." || string(text) == ".." || path == "" && l.skipsTopLevel(string(text)) {
				continue
			}
			mode, err := direntKind(fd, string(text), kind)
			if err != nil {
				return &fs.PathError{Op: "stat", Path: path + string(text), Err: err}
			}
			l.names = append(l.names, dirEntry{name: string(text), kind: mode})
		}
	}
	slices.SortFunc(l.names, func(a, b dirEntry) int { return strings.Compare(a.name, b.name) })
	return nil
}

// FileClock is the clock that sets the timestamps of a file system: the coarse kernel clock, which lags behind the other
// clocks, or an unknown one, as that of a network file system.
type FileClock struct{ isKernel bool }

// FileClockOf returns the clock of the file system of a directory.
func FileClockOf(dir string) FileClock {
	var fs unix.Statfs_t
	return FileClock{isKernel: unix.Statfs(dir, &fs) == nil && durable.HasKernelTimes(&fs)}
}

// now returns the time by the clock; 0 where it is unknown.
func (c FileClock) now() int64 {
	var now unix.Timespec
	if !c.isKernel || unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now) != nil {
		return 0
	}
	return now.Nano()
}

// fileClockNow returns the time by the clock of the file system of a directory; 0 where it is unknown.
func fileClockNow(dir string) int64 { return FileClockOf(dir).now() }

// fileClockTick is the resolution of that clock plus a margin.
var fileClockTick = sync.OnceValue(func() time.Duration {
	const most = 20 * time.Millisecond
	var step unix.Timespec
	if unix.ClockGetres(unix.CLOCK_REALTIME_COARSE, &step) != nil || step.Nano() <= 0 {
		return most
	}
	return min(most, time.Duration(step.Nano())+time.Millisecond)
})

// direntKind returns the file type for a d_type, and calls fstatat where the file system does not fill that in.
func direntKind(fd int, text string, kind byte) (fs.FileMode, error) {
	if kind == unix.DT_UNKNOWN {
		var st unix.Stat_t
		err := unix.Fstatat(fd, text, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == unix.ENOENT {
			return fs.ModeIrregular, nil // removed since it was listed; no index entry matches it
		}
		if err != nil {
			return 0, err
		}
		kind = byte(st.Mode & unix.S_IFMT >> 12)
	}
	switch kind {
	case unix.DT_REG:
		return 0, nil
	case unix.DT_DIR:
		return fs.ModeDir, nil
	case unix.DT_LNK:
		return fs.ModeSymlink, nil
	}
	return fs.ModeIrregular, nil
}

// openPathOnly opens a directory only as the base of *at calls.
const openPathOnly = unix.O_PATH
