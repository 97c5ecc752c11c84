package confine

import (
	"io/fs"
	"os"
	"runtime"
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
	return m
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
