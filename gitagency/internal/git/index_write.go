package git

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// LockedError is a file that another git is writing.
type LockedError struct{ Path string }

func (e *LockedError) Error() string { return e.Path + " is locked" }

// WriteIndex gives a linked worktree another index, as git does it: whoever holds the lock writes, and others
// see all of it or nothing. at is when the index was last in step with the files: what changed at the same
// moment git looks at again, and what changed before it believes. The error is a *LockedError when a git is
// at work there.
func (r *Repo) WriteIndex(name string, x Index, at time.Time) error {
	return r.replaceIndex(name, func() (Index, time.Time, error) { return x, at, nil })
}

// replaceIndex replaces the index of a linked worktree by what is made while it is locked.
func (r *Repo) replaceIndex(name string, with func() (Index, time.Time, error)) (err error) {
	if name == "" || name == "." || name == ".." || name != filepath.Base(name) {
		return fmt.Errorf("%q does not name a worktree's entry", name)
	}
	index := filepath.Join(r.AdminDir(name), "index")
	lock := index + ".lock"
	perm := fs.FileMode(0o666)
	if fi, err := os.Lstat(index); err == nil {
		perm = fi.Mode().Perm()
	}
	f, err := os.OpenFile(lock, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if errors.Is(err, fs.ErrExist) {
		return &LockedError{lock}
	}
	if err != nil {
		return err
	}
	x, at, err := with()
	if err == nil {
		err = x.write(f)
	}
	if err = errors.Join(err, f.Close()); err == nil && at.Before(time.Now()) {
		err = os.Chtimes(lock, at, at)
	}
	if err == nil {
		err = os.Rename(lock, index)
	}
	if err != nil {
		return errors.Join(err, os.Remove(lock))
	}
	return nil
}
