package git

import "golang.org/x/sys/unix"

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
