//go:build !linux

package guard

import "golang.org/x/sys/unix"

// chmodFileAt changes the permissions of a file, and never of the target of a symlink.
func chmodFileAt(dir int, name string, perm uint32) error {
	return unix.Fchmodat(dir, name, perm, unix.AT_SYMLINK_NOFOLLOW)
}

// mkfifoAt is not supported: there is no such call with a directory everywhere.
func mkfifoAt(int, string, uint32) error { return unix.ENOSYS }

// chmodDirAt changes the permissions of a directory, and never of the target of a symlink.
func chmodDirAt(dir int, name string, perm uint32) error {
	return unix.Fchmodat(dir, name, perm, unix.AT_SYMLINK_NOFOLLOW)
}

func renameNoReplace(from int, name string, to int, as string) error {
	return renameIfAbsent(from, name, to, as)
}

func renameExchange(int, string, int) error { return unix.ENOSYS }
