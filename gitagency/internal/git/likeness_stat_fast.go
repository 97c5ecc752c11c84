//go:build linux && (amd64 || arm64 || riscv64)

package git

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// statNamed looks at a name with a NUL behind in a directory, and through no link there. It is done so often that to make
// a string of each would count.
func statNamed(dir int, name []byte, st *unix.Stat_t) bool {
	_, _, errno := unix.Syscall6(unix.SYS_NEWFSTATAT, uintptr(dir), uintptr(unsafe.Pointer(unsafe.SliceData(name))),
		uintptr(unsafe.Pointer(st)), unix.AT_SYMLINK_NOFOLLOW, 0, 0)
	return errno == 0
}
