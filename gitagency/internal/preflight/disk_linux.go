package preflight

import "golang.org/x/sys/unix"

// readFreeSpace returns the free space of the file system of a directory.
func readFreeSpace(dir string) (freeSpace, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return freeSpace{}, err
	}
	return freeSpace{bytes: st.Bavail * uint64(st.Bsize), inodes: st.Ffree, anyInodes: st.Files == 0}, nil
}
