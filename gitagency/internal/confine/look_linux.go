package confine

import (
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

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
	if _, err := os.Stat(path); err != nil { // as with most of what could be there; links that lead nowhere are nothing too
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
	e := Entry{Path: resolved, Kind: Device}
	switch fi.Mode().Type() {
	case fs.ModeDir:
		e.Kind = Directory
	case 0:
		e.Kind = File
	case fs.ModeSocket:
		e.Kind = Socket
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		e.Owner = int(st.Uid)
	}
	return e
}

// touch takes what cannot be looked up for what is everywhere.
func touch(path, other string) guard.Relation {
	place, err := guard.Locate(path)
	if err != nil {
		return guard.Same
	}
	return place.Relation(other)
}
