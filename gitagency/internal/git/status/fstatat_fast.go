//go:build linux && (amd64 || arm64 || riscv64)

package status

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// fstatatNoFollow stats a NUL-terminated name relative to a directory, without following a symlink there. It calls
// the kernel directly: it runs so often that allocating a string for each name would show.
func fstatatNoFollow(dir int, name []byte, st *unix.Stat_t) bool {
	_, _, errno := unix.Syscall6(unix.SYS_NEWFSTATAT, uintptr(dir), uintptr(unsafe.Pointer(unsafe.SliceData(name))),
		uintptr(unsafe.Pointer(st)), unix.AT_SYMLINK_NOFOLLOW, 0, 0)
	return errno == 0
}
