//go:build !linux

package status

import (
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// readNames reads the names in a directory, sorted.
func (l *scanWorker) readNames(fd int, path string) error {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	f := os.NewFile(uintptr(dup), path+".")
	entries, err := f.ReadDir(-1)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	l.names = l.names[:0]
	for _, e := range entries {
		if path != "" || !l.skipsTopLevel(e.Name()) {
			l.names = append(l.names, dirEntry{name: e.Name(), kind: e.Type()})
		}
	}
	slices.SortFunc(l.names, func(a, b dirEntry) int { return strings.Compare(a.name, b.name) })
	return nil
}

// FileClock is the clock that sets the timestamps of a file system, which is unknown here.
type FileClock struct{}

// FileClockOf returns the clock of the file system of a directory.
func FileClockOf(string) FileClock { return FileClock{} }

func (FileClock) now() int64 { return 0 }

func fileClockNow(string) int64 { return 0 }

// fileClockTick is the resolution of file timestamps, taken to be that of the coarsest file systems.
func fileClockTick() time.Duration { return 2 * time.Second }

// openPathOnly opens a directory only as the base of *at calls; there is no O_PATH here.
const openPathOnly = unix.O_RDONLY
