package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// stamps are those of all that a lab consists of, by path.
func stamps(dir string) (map[string]stamp, error) {
	all := map[string]stamp{}
	for _, root := range roots {
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
			one := stamp{ino: st.Ino, mode: fi.Mode(), mtime: st.Mtim.Nano()}
			if d.IsDir() {
				one.attributes, err = attributes(path)
			} else {
				one.size, one.ctime = st.Size, st.Ctim.Nano()
				if fi.Mode().IsRegular() && st.Nlink > 1 {
					err = errors.New(path + " has several names, which one by one cannot be put back")
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

// attributes are the extended ones of a directory.
func attributes(path string) (string, error) {
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
