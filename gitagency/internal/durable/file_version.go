package durable

import (
	"time"

	"golang.org/x/sys/unix"
)

// FileVersion changes whenever a file does, since no program can set the ctime. The zero value stands for a file that has to
// be read.
type FileVersion struct {
	Ino         uint64
	Size, Ctime int64 // in bytes, and in nanoseconds
}

// minVersionAge is the age from which on a file has a version. A younger one could be replaced within the resolution of the
// clock of its file system without a change of these values.
const minVersionAge = 2 * time.Second

// VersionIn returns the version of a regular file, whose path is relative to an open directory. It is zero if there is no
// such file or if it has changed just before now.
func VersionIn(dir int, path string, now time.Time) FileVersion {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, path, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return FileVersion{}
	}
	changed := time.Unix(st.Ctim.Unix())
	if now.Sub(changed) < minVersionAge {
		return FileVersion{}
	}
	return FileVersion{Ino: st.Ino, Size: st.Size, Ctime: changed.UnixNano()}
}

// IsKnown reports whether an unchanged version means an unchanged file.
func (v FileVersion) IsKnown() bool { return v != FileVersion{} }
