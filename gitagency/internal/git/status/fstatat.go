//go:build !linux || !(amd64 || arm64 || riscv64)

package status

import "golang.org/x/sys/unix"

// fstatatNoFollow stats a NUL-terminated name relative to a directory, without following a symlink there.
func fstatatNoFollow(dir int, name []byte, st *unix.Stat_t) bool {
	return unix.Fstatat(dir, string(name[:len(name)-1]), st, unix.AT_SYMLINK_NOFOLLOW) == nil
}
