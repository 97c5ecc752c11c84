package confine

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/landlock"
	"github.com/git-agency/git-agency/gitagency/internal/seccomp"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
	"golang.org/x/sys/unix"
)

// InspectMachine finds out what this machine offers. It starts no process, unless a plan has an overlay on a file system of
// an unusual type. Whether namespaces can be created shows when they are.
func InspectMachine() walls.Machine {
	m := walls.Machine{System: runtime.GOOS, Arch: runtime.GOARCH, Kernel: kernelRelease(), UID: os.Geteuid(), GID: os.Getegid(), Files: hostFiles()}
	abi, err := landlock.ABI()
	m.LandlockABI = abi
	if f := landlockFeature(abi, err); f.State != OK {
		m.LandlockABI, m.WhyNoLandlock = 0, f.Detail
	}
	if f := seccompFeature(seccomp.Available()); f.State != OK {
		m.WhyNoSeccomp = f.Detail
	}
	if m.LandlockABI < landlock.SocketsABI {
		m.Sockets = listeningSockets()
	}
	return m
}

// hostFiles reads the list of mounts once: planning asks for it often.
func hostFiles() walls.FileLookup {
	table := sync.OnceValue(guard.ReadMountTable)
	lower := lowerLayers{tried: map[uint64]string{}}
	return walls.FileLookup{
		Lookup: lookupEntry, Overlap: overlapOf, Subdirs: listSubdirs,
		Mounts:     func(dir string) []string { return table().Below(dir) },
		OtherNames: func(path string) []string { return table().OtherNames(path) },
		ReadLink:   readLink,

		WhyNoOverlay: lower.whyNot,
	}
}

func lookupEntry(path string) walls.Entry {
	if e, known := lookupDirect(path); known {
		return e
	}
	if _, err := os.Stat(path); err != nil { // a dangling symlink counts as absent
		return walls.Entry{Path: path}
	}
	resolved, err := guard.Resolve(path)
	if err != nil {
		return walls.Entry{Path: path}
	}
	fi, err := os.Lstat(resolved)
	if err != nil {
		return walls.Entry{Path: path}
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return walls.Entry{Path: path}
	}
	return newEntry(resolved, st.Mode, st.Uid, st.Gid)
}

// lookupDirect looks up a path without symlinks, which most paths are, and most of those do not exist.
func lookupDirect(path string) (e walls.Entry, known bool) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err == unix.ENOENT || err == unix.ENOTDIR {
		return walls.Entry{Path: path}, true // without a descriptor, which takes longer
	}
	fd, err := openNoSymlinks(unix.AT_FDCWD, path)
	if err != nil {
		return walls.Entry{Path: path}, err == unix.ENOENT || err == unix.ENOTDIR
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &st); err != nil {
		return walls.Entry{}, false
	}
	return newEntry(filepath.Clean(path), st.Mode, st.Uid, st.Gid), true
}

func newEntry(path string, mode, uid, gid uint32) walls.Entry {
	return walls.Entry{Path: path, Kind: kindOf(mode), Owner: int(uid), Group: int(gid), SetGID: mode&unix.S_ISGID != 0}
}

// readLink returns the target of a symbolic link, or "".
func readLink(path string) string {
	target, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return target
}

// listSubdirs lists the directories in a directory, as far as they can be looked up.
func listSubdirs(dir string) (found []walls.Entry) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // a command that cannot read it reports that
	}
	for _, e := range entries {
		if e.IsDir() {
			if sub, known := lookupDirect(filepath.Join(dir, e.Name())); known && sub.Kind == walls.Directory {
				found = append(found, sub)
			}
		}
	}
	return found
}

func kindOf(mode uint32) walls.EntryKind {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return walls.Directory
	case unix.S_IFREG:
		return walls.File
	case unix.S_IFSOCK:
		return walls.Socket
	}
	return walls.Device
}

// overlapOf treats a path that cannot be looked up as overlapping with everything.
func overlapOf(path, other string) guard.Relation {
	place, err := guard.Locate(path)
	if err != nil {
		return guard.Same
	}
	return place.Relation(other)
}
