package git

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// IsSparseFile reports whether a file is larger than 1 GiB with less than a sixteenth of it allocated. Git reads the
// holes too.
func IsSparseFile(fi fs.FileInfo) bool {
	const large, block, mostly = 1 << 30, 512, 16
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && fi.Size() > large && st.Blocks*block < fi.Size()/mostly
}

// FileStat is the stat data by which a later scan recognises an unchanged file.
type FileStat struct {
	Mode         uint32
	Size         int64
	Mtime, Ctime int64 // nanoseconds
	Ino          uint64
}

func FileStatOf(st *unix.Stat_t) FileStat {
	return FileStat{Mode: uint32(st.Mode), Size: st.Size, Mtime: unix.TimespecToNsec(unix.Timespec(st.Mtim)), Ctime: unix.TimespecToNsec(unix.Timespec(st.Ctim)), Ino: st.Ino}
}
