package lock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openLockFile opens the lock file, and creates it and its directory when they are missing.
//
// Modes follow the parent directory, not the umask: in a repository shared by a group, a lock that only its first user
// can open would lock the others out for good.
func openLockFile(dir, path string) (*os.File, error) {
	madeDir, err := mkdirLikeParent(dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	mode := info.Mode() & 0o666
	f, madeFile, err := openOrCreate(path, mode)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	// The process that created the directory also fixes the mode of the file: another process may have created the file
	// between our mkdir and our chmod, and copied a mode that the umask had reduced.
	if err == nil && (madeDir || madeFile) && info.Mode().Perm() != mode {
		err = f.Chmod(mode)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// mkdirLikeParent creates dir, when missing, with the permissions of its parent, and reports whether it did.
func mkdirLikeParent(dir string) (bool, error) {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	parent, err := os.Stat(filepath.Dir(dir))
	if err != nil {
		return false, err
	}
	mode := parent.Mode() & (fs.ModePerm | fs.ModeSetgid)
	if err := os.Mkdir(dir, mode.Perm()); errors.Is(err, fs.ErrExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	// The chmod is not only for the umask: mkdir(2) ignores the setgid bit.
	if err := os.Chmod(dir, mode); err != nil {
		os.Remove(dir) // the next caller must not find it with the wrong mode
		return false, err
	}
	return true, nil
}

// openOrCreate opens path for reading and writing and reports whether it created the file. It follows no symbolic link,
// which could redirect the lock to another file.
func openOrCreate(path string, mode fs.FileMode) (f *os.File, created bool, err error) {
	const flags = os.O_RDWR | unix.O_NOFOLLOW | unix.O_CLOEXEC
	for {
		if f, err = os.OpenFile(path, flags, 0); !errors.Is(err, fs.ErrNotExist) {
			return f, false, err
		}
		if f, err = os.OpenFile(path, flags|os.O_CREATE|os.O_EXCL, mode); !errors.Is(err, fs.ErrExist) {
			return f, true, err
		}
		// Another process created it between the two calls: open it again.
	}
}

// isCurrent reports whether path still names the file f.
func isCurrent(f *os.File, path string) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return os.SameFile(opened, named), nil
}
