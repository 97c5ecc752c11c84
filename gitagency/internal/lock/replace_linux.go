package lock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// replaceIfReadLocked takes the lock from processes that have locked f for reading. These need no permission to write,
// so they are none of ours and hold nothing; but the kernel grants no write lock as long as they last. A new file,
// locked already, takes the place of f, and is returned; nil if f is not locked for reading, or if another process is
// about to replace it.
//
// Processes that replace the file exclude each other by the lock of a second file, whose mode permits no user to read it. The one that
// has it holds a read lock of f itself meanwhile, so that no process can hold f when the path is given to the new file.
// Processes that get f later find that the path names another file.
func replaceIfReadLocked(f *os.File) (*os.File, error) {
	if found, err := conflictingLock(f, unix.F_WRLCK); err != nil || found != unix.F_RDLCK {
		return nil, nil // without these locks readers cannot be told from writers
	}
	guard, err := lockReplacement(f)
	if guard == nil || err != nil {
		return nil, err
	}
	defer guard.Close()
	defer os.Remove(guard.Name()) // still locked: a process that waits for it finds that it is gone
	current, err := os.OpenFile(f.Name(), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer current.Close()
	if err := setOFDLock(current, unix.F_RDLCK, false); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil // the reader is gone, and a writer holds it
	} else if err != nil {
		return nil, err
	}
	if same, err := isCurrent(f, current.Name()); !same || err != nil {
		return nil, err // replaced before we had the guard
	}
	return createLocked(current)
}

// lockReplacement locks the file by which processes that replace the lock file f exclude each other. It returns nil if
// another process has it.
func lockReplacement(f *os.File) (*os.File, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(filepath.Dir(f.Name()), replaceGuardName)
	guard, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o200)
	if err != nil {
		return nil, err
	}
	current := false
	if err = setOFDLock(guard, unix.F_WRLCK, false); err == nil {
		current, err = isCurrent(guard, path)
	}
	if current {
		// For the other users of a shared repository, in case we are killed. It fails if one of them has created it.
		_ = guard.Chmod(info.Mode() & 0o222)
		return guard, nil
	}
	guard.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = nil
	}
	return nil, err
}

// createLocked puts a new file, which it has locked, in the place of old.
func createLocked(old *os.File) (*os.File, error) {
	path, temp := old.Name(), filepath.Join(filepath.Dir(old.Name()), replacementName)
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by a killed process
		return nil, err
	}
	info, err := old.Stat()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(temp, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: temp, Err: err}
	}
	f := os.NewFile(uintptr(fd), path) // its name from the rename on
	if err = setOFDLock(f, unix.F_WRLCK, false); err == nil {
		err = f.Chmod(info.Mode().Perm())
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		f.Close()
		return nil, errors.Join(err, os.Remove(temp))
	}
	return f, nil
}
