package guard

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// chmodDirAt changes the permissions of a directory, including one that cannot be opened for reading. It goes through
// an O_PATH descriptor, so that it never changes the target of a symlink, or a file that took the directory's place
// since it was checked and that may be a hard link to a file outside of the tree.
func chmodDirAt(dir int, name string, perm uint32) error {
	return chmodAt(dir, name, perm, unix.O_DIRECTORY, unix.S_IFDIR)
}

// chmodFileAt changes the permissions of a regular file, including one that cannot be opened for reading.
func chmodFileAt(dir int, name string, perm uint32) error {
	return chmodAt(dir, name, perm, 0, unix.S_IFREG)
}

func chmodAt(dir int, name string, perm uint32, flags int, kind uint32) (err error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != kind {
		return unix.EINVAL // replaced since it was checked
	}
	err = unix.Fchmodat(fd, "", perm, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) { // fchmodat2(2) exists since Linux 6.6
		err = unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), perm)
	}
	return err
}

func renameNoReplace(from int, name string, to int, as string) error {
	err := unix.Renameat2(from, name, to, as, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // not supported by this kernel or file system
		return renameIfAbsent(from, name, to, as)
	}
	return err
}

func renameExchange(a int, name string, b int) error {
	return unix.Renameat2(a, name, b, name, unix.RENAME_EXCHANGE)
}

func mkfifoAt(dir int, name string, perm uint32) error {
	return unix.Mknodat(dir, name, unix.S_IFIFO|perm, 0)
}
