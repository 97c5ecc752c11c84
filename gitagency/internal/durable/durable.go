// Package durable writes, creates and removes files and directories so that the result survives a power cut. It handles
// names and bytes and must never interpret the content.
//
// A file is written to a temporary file in its own directory, fsynced and renamed, and then the directory is fsynced:
// a reader sees the old content or the new content, never a part.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// TempPrefix starts the names of files that are not completely written yet and of trees that are being removed.
// Code that lists a directory skips these names.
const TempPrefix = ".tmp-"

// WriteFile atomically replaces the content of path with data, and returns after the change is durable.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	f, err := Create(path, data, perm)
	if err != nil {
		return err
	}
	return f.Close()
}

// ReadFile reads a regular file of at most limit bytes. Unlike os.ReadFile it neither blocks on a FIFO nor fills memory
// from a device. It does without os.File, because os.File registers a descriptor opened with O_NONBLOCK with the
// poller, and one listing reads a thousand records.
func ReadFile(path string, limit int64) ([]byte, error) {
	data, _, err := readFile(unix.AT_FDCWD, path, 0, limit)
	return data, err
}

// ReadFileTime is ReadFile for a path relative to an open directory that also returns the mtime of the file, from before it
// was read.
func ReadFileTime(dir int, path string, limit int64) ([]byte, time.Time, error) {
	return readFile(dir, path, 0, limit)
}

// ReadFileIn is ReadFile for a path relative to an open directory, which the kernel finds faster than an absolute one. A
// symbolic link with that name is not followed and is an error.
func ReadFileIn(dir int, path string, limit int64) ([]byte, error) {
	data, _, err := readFile(dir, path, unix.O_NOFOLLOW, limit)
	return data, err
}

func readFile(dir int, path string, flags int, limit int64) ([]byte, time.Time, error) {
	fail := func(err error) ([]byte, time.Time, error) {
		return nil, time.Time{}, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	fd, err := retryEINTR(func() (int, error) {
		return unix.Openat(dir, path, flags|unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return fail(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail(err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fail(errors.New("not a regular file"))
	case st.Size > limit:
		return fail(fmt.Errorf("larger than %d bytes", limit))
	}
	data := AllocBuffer(st.Size + 1)[:0]
	for int64(len(data)) <= limit {
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := retryEINTR(func() (int, error) { return unix.Read(fd, data[len(data):cap(data)]) })
		if err != nil {
			return fail(err)
		}
		if data = data[:len(data)+max(n, 0)]; n <= 0 || st.Size > 0 && int64(len(data)) == st.Size { // files of /proc have no size
			return data, time.Unix(st.Mtim.Unix()), nil
		}
	}
	return fail(fmt.Errorf("larger than %d bytes", limit)) // the file grew while it was read
}

// retryEINTR repeats a system call that a signal interrupted.
func retryEINTR(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != syscall.EINTR {
			return n, err
		}
	}
}

// Create is WriteFile that returns the open file, for a caller that wants to hold a lock on it. The prepare functions
// run on the file before it is visible under its name.
func Create(path string, data []byte, perm fs.FileMode, prepare ...func(*os.File) error) (_ *os.File, err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, TempPrefix+filepath.Base(path)+"-")
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write %s: %w", path, err), f.Close(), RemoveIfExists(f.Name()))
		}
	}()
	if err := f.Chmod(perm); err != nil {
		return nil, err
	}
	if _, err := f.Write(data); err != nil {
		return nil, err
	}
	for _, p := range prepare {
		if err := p(f); err != nil {
			return nil, err
		}
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return nil, err
	}
	// From here on the name exists: a caller that gets an error finds the file there and removes it.
	return f, SyncDir(dir)
}

// Mkdir creates one directory, exclusively, and makes its name durable; on failure it leaves nothing behind.
func Mkdir(path string, perm fs.FileMode) error {
	if err := os.Mkdir(path, perm); err != nil {
		return err
	}
	if err := SyncDir(filepath.Dir(path)); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// Remove removes one file or empty directory durably. A name that does not exist is not an error.
func Remove(path string) error {
	if err := os.Remove(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// RemoveTemps removes the temporary files that killed writers left in a directory. The caller guarantees that no other
// process is writing there. A missing directory is not an error.
func RemoveTemps(dir string) error {
	temps, err := ListTemps(dir)
	if err != nil {
		return err
	}
	for _, path := range temps {
		if err := Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// ListTemps lists the entries of a directory that start with TempPrefix: files that are being written and trees that
// RemoveAtomically has renamed. A missing directory is not an error.
func ListTemps(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var temps []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), TempPrefix) {
			temps = append(temps, filepath.Join(dir, e.Name()))
		}
	}
	return temps, nil
}

// RemoveAtomically removes a directory tree so that no reader ever sees a part of it: it renames the tree durably to a
// temporary name and then deletes it. A missing tree is not an error.
func RemoveAtomically(path string) error {
	temp := filepath.Join(filepath.Dir(path), TempPrefix+filepath.Base(path))
	if err := RemoveTree(temp); err != nil { // left by an earlier attempt
		return err
	}
	switch err := os.Rename(path, temp); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	if err := SyncDir(filepath.Dir(path)); err != nil {
		return err
	}
	return RemoveTree(temp)
}

// Sync fsyncs files and directories: the contents of the former, the names in the latter. It does so at once: a file system
// with a journal then writes that once for all of them.
func Sync(paths ...string) error {
	if len(paths) == 1 {
		return syncPath(paths[0])
	}
	errs := make([]error, len(paths))
	var group sync.WaitGroup
	for i, p := range paths {
		group.Go(func() { errs[i] = syncPath(p) })
	}
	group.Wait()
	return errors.Join(errs...)
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error { return Sync(dir) }

// RemoveTree removes a directory tree, also where a program removed its own permissions (the Go module cache is
// read-only by design). It never follows a symlink out of the tree. A missing tree is not an error.
func RemoveTree(path string) error {
	err := os.RemoveAll(path)
	if errors.Is(err, fs.ErrPermission) {
		if err := RestoreOwnerPermissions(path); err != nil {
			return err
		}
		err = os.RemoveAll(path)
	}
	for try := 0; errors.Is(err, syscall.ENOTEMPTY) && try < 10; try++ { // another process still creates files there
		err = os.RemoveAll(path)
	}
	return err
}

// RestoreOwnerPermissions gives the owner rwx on all directories of a tree, and read permission on its regular files.
func RestoreOwnerPermissions(path string) error {
	fi, err := os.Lstat(path)
	if err != nil || !fi.IsDir() {
		return err
	}
	if err := os.Chmod(path, fi.Mode().Perm()|0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	return addOwnerPermissions(root, ".")
}

func addOwnerPermissions(root *os.Root, dir string) error {
	d, err := root.Open(dir)
	if err != nil {
		return err
	}
	entries, err := d.ReadDir(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		fi, err := e.Info()
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return err
		}
		switch {
		case fi.IsDir():
			if fi.Mode().Perm()&0o700 != 0o700 {
				if err := root.Chmod(name, fi.Mode().Perm()|0o700); err != nil {
					return err
				}
			}
			if err := addOwnerPermissions(root, name); err != nil {
				return err
			}
		case fi.Mode().IsRegular() && fi.Mode().Perm()&0o400 == 0:
			if err := root.Chmod(name, fi.Mode().Perm()|0o400); err != nil {
				return err
			}
		}
	}
	return nil
}

// RemoveIfExists removes a file or an empty directory; a missing one is no error.
func RemoveIfExists(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// IsDir reports whether a path is a directory and not a symlink to one.
func IsDir(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.IsDir()
}

// WriteNew writes a file that must not exist. It does not sync it.
func WriteNew(path string, content []byte, perm fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}
