//go:build !linux

package guard

import "golang.org/x/sys/unix"

// chmodDirAt changes the permissions of a directory, and never of the target of a symlink.
func chmodAt(dir int, name string, perm uint32) error {
	return unix.Fchmodat(dir, name, perm, unix.AT_SYMLINK_NOFOLLOW)
}

func moveNew(from int, name string, to int) error { return renameNew(from, name, to) }

func exchange(int, string, int) error { return unix.ENOSYS }
