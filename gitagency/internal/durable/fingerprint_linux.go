package durable

import (
	"fmt"
	"io/fs"
	"syscall"
)

func inodeFingerprint(fi fs.FileInfo) string {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d %d", st.Ino, st.Ctim.Nano()) // ctime: only the kernel sets it
}
