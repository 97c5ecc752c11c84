package git

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// SpecialFileError reports a FIFO, socket or device where git would read a file, and block.
type SpecialFileError struct{ Path string }

func (e *SpecialFileError) Error() string {
	return e.Path + " is not a regular file, and git would block on it; remove it first"
}

// SparseFileError reports a huge sparse file, of which git would read all the holes.
type SparseFileError struct {
	Path string
	Size int64
}

func (e *SparseFileError) Error() string {
	return fmt.Sprintf("%s is a sparse file of %d bytes, which git would take too long to read; remove it, or have git ignore it", e.Path, e.Size)
}

// WalkWorktree lists the directories below tree, not tree itself, that contain a .git of any kind, and the huge
// sparse files. It fails on files that git could not read, and on special files that git would open.
func WalkWorktree(tree string) (nested []string, hollow []*SparseFileError, err error) {
	root := os.Geteuid() == 0 // root may read everything
	err = filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != tree:
			return nil // gone since it was listed
		case err != nil:
			return err
		case d.Type().IsRegular():
			fi, err := d.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil // gone since it was listed
			}
			if err != nil {
				return err
			}
			if IsSparseFile(fi) {
				hollow = append(hollow, &SparseFileError{Path: path, Size: fi.Size()})
			}
			if fi.Mode().Perm()&0o400 == 0 && !root { // checked by mode, without opening the file
				return &fs.PathError{Op: "read", Path: path, Err: fs.ErrPermission}
			}
			return nil
		case !d.IsDir():
			if strings.HasPrefix(d.Name(), ".git") && d.Type()&fs.ModeSymlink == 0 {
				return &SpecialFileError{Path: path}
			}
			return nil
		case path == tree:
			return nil
		}
		if _, err := os.Lstat(filepath.Join(path, ".git")); err != nil {
			return nil
		}
		nested = append(nested, path)
		return fs.SkipDir
	})
	return nested, hollow, err
}

// ParentsAreDirs reports whether every parent of a path is a directory, and none a symlink.
func ParentsAreDirs(tree, name string) bool {
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if fi, err := os.Lstat(filepath.Join(tree, dir)); err != nil || !fi.IsDir() {
			return false
		}
	}
	return true
}
