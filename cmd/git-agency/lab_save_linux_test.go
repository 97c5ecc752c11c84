package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// fileStamps returns the stamps of all files below labRoots, by path relative to dir.
func fileStamps(dir string) (map[string]fileStamp, error) {
	all := map[string]fileStamp{}
	for _, root := range labRoots {
		err := filepath.WalkDir(filepath.Join(dir, root), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) && path == filepath.Join(dir, root) {
				return nil
			}
			if err != nil {
				return err
			}
			fi, err := d.Info()
			if err != nil {
				return err
			}
			st := fi.Sys().(*syscall.Stat_t)
			one := fileStamp{ino: st.Ino, mode: fi.Mode(), mtime: st.Mtim.Nano()}
			if d.IsDir() {
				one.xattrs, err = directoryXattrs(path)
			} else {
				one.size, one.ctime = st.Size, st.Ctim.Nano()
				if fi.Mode().IsRegular() && st.Nlink > 1 {
					err = errors.New(path + " has hard links, which cannot be restored one by one")
				}
			}
			name, _ := filepath.Rel(dir, path)
			all[name] = one
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// directoryXattrs returns the names and values of the extended attributes of a directory.
func directoryXattrs(path string) (string, error) {
	var names, value [1 << 10]byte
	n, err := unix.Llistxattr(path, names[:])
	if errors.Is(err, unix.ENOTSUP) || err == nil && n == 0 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	all := string(names[:n])
	for name := range strings.SplitSeq(strings.TrimSuffix(all, "\x00"), "\x00") {
		n, err := unix.Lgetxattr(path, name, value[:])
		if err != nil {
			return "", err
		}
		all += string(value[:n]) + "\x00"
	}
	return all, nil
}
