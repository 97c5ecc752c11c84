package confine

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// Look asks what this machine offers. It starts nothing; whether namespaces can be made shows when they
// are.
func Look() Machine {
	m := Machine{System: runtime.GOOS, Arch: runtime.GOARCH, Kernel: release(), UID: os.Geteuid(), Files: realFiles()}
	abi, err := landlockABI()
	m.LandlockABI = abi
	if f := judgeLandlock(abi, err); f.State != OK {
		m.LandlockABI, m.NoLandlock = 0, f.Detail
	}
	if f := judgeSeccomp(seccompFilters()); f.State != OK {
		m.NoSeccomp = f.Detail
	}
	if m.LandlockABI < socketsABI {
		m.Sockets = listening()
	}
	return m
}

// listening reads the paths of sockets from the kernel's list of those of this network. One that was bound by
// a path from somewhere is there as just that, and cannot be found.
func listening() []string {
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil // there may be no /proc; what then is missing is said by who needs it
	}
	var paths []string
	for line := range strings.Lines(string(table)) {
		// number, references, protocol, flags, type, state, inode, and all the rest
		if at := strings.Index(line, " /"); at >= 0 {
			paths = append(paths, strings.TrimSuffix(line[at+1:], "\n"))
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths) // every connection is there under the name of who accepted it
}

// realFiles reads the list of mounts once: a plan asks for much.
func realFiles() Files {
	all := sync.OnceValue(func() []string { return guard.MountedBelow("/") })
	return Files{Look: look, Touch: touch, Mounts: func(dir string) []string {
		var below []string
		for _, point := range all() {
			if guard.Contains(dir, point) {
				below = append(below, point)
			}
		}
		return below
	}}
}

func look(path string) Entry {
	if e, known := glance(path); known {
		return e
	}
	if _, err := os.Stat(path); err != nil { // links that lead nowhere are nothing too
		return Entry{Path: path}
	}
	resolved, err := guard.Resolve(path)
	if err != nil {
		return Entry{Path: path}
	}
	fi, err := os.Lstat(resolved)
	if err != nil {
		return Entry{Path: path}
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return Entry{Path: path}
	}
	return Entry{Path: resolved, Kind: kindOf(st.Mode), Owner: int(st.Uid)}
}

// glance looks where no link is on the way, as with most paths, and most of those lead to nothing.
func glance(path string) (e Entry, known bool) {
	fd, err := at(unix.AT_FDCWD, path)
	if err != nil {
		return Entry{Path: path}, err == unix.ENOENT || err == unix.ENOTDIR
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Entry{}, false
	}
	return Entry{Path: filepath.Clean(path), Kind: kindOf(st.Mode), Owner: int(st.Uid)}, true
}

func kindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return Directory
	case unix.S_IFREG:
		return File
	case unix.S_IFSOCK:
		return Socket
	}
	return Device
}

// touch takes what cannot be looked up for what is everywhere.
func touch(path, other string) guard.Relation {
	place, err := guard.Locate(path)
	if err != nil {
		return guard.Same
	}
	return place.Relation(other)
}
