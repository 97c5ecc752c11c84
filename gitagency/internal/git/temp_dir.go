package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
)

// OwnedTempDir is a temporary directory in that of the system, so that commands that only read need no write access to the
// repository.
//
// All directories of one user are in one parent, which exists while any of them does. The owner of a directory holds
// a flock on it, so that directories of killed processes are recognized whatever became of their process ids; the
// next process that needs one deletes them. So an OwnedTempDir must stay referenced until it is removed: the garbage
// collector closes its file and releases the lock. Other users have no access: they can neither put anything there
// nor lock a dead directory.
type OwnedTempDir struct {
	Path     string   // absolute: git runs in another directory
	lockFile *os.File // the flock; nil for a directory outside of the common parent
}

// makeTempDirIn creates a directory in system, which is os.TempDir except in tests.
func makeTempDirIn(system string) (*OwnedTempDir, error) {
	system, err := filepath.Abs(system)
	if err != nil {
		return nil, err
	}
	const tries = 10 // the last process that leaves removes the common parent
	err = fs.ErrNotExist
	for n := 0; n < tries && errors.Is(err, fs.ErrNotExist); n++ {
		var t *OwnedTempDir
		if t, err = makeLockedTempDir(filepath.Join(system, fmt.Sprintf("git-agency-%d", os.Geteuid()))); err == nil {
			return t, nil
		}
	}
	// The name of the parent is taken by another user, or the file system has no locks.
	path, err := os.MkdirTemp(system, "git-agency-")
	return &OwnedTempDir{Path: path}, err
}

func MakeTempDir() (*OwnedTempDir, error) { return makeTempDirIn(os.TempDir()) }

// makeLockedTempDir creates a directory in the common parent and locks it.
func makeLockedTempDir(parent string) (_ *OwnedTempDir, err error) {
	switch err := os.Mkdir(parent, 0o700); {
	case errors.Is(err, fs.ErrExist):
		if err := checkPrivateDir(parent); err != nil {
			return nil, err
		}
		removeAbandonedTempDirs(parent)
	case err != nil:
		return nil, err
	}
	parentLock, err := lock.AcquireDirShared(context.Background(), parent, time.Second)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, parentLock.Close()) }()
	path, err := os.MkdirTemp(parent, "git-agency-")
	if err != nil {
		return nil, err
	}
	held, err := lock.AcquireDirExclusive(context.Background(), path, 0)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return &OwnedTempDir{Path: path, lockFile: held}, nil
}

// checkPrivateDir refuses a directory that others have made or may write to. The sticky bit of the system's directory
// keeps others from replacing ours.
func checkPrivateDir(dir string) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || !fi.IsDir() || int64(st.Uid) != int64(os.Geteuid()) || fi.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is not a private directory of this user", dir)
	}
	return nil
}

// removeAbandonedTempDirs deletes the directories of killed processes. Errors do not matter: the next process tries
// again.
func removeAbandonedTempDirs(parent string) {
	// With the exclusive lock no process is between creating a directory and locking it.
	parentLock, err := lock.AcquireDirExclusive(context.Background(), parent, 0)
	if err != nil {
		return
	}
	var abandoned []OwnedTempDir
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		t := OwnedTempDir{Path: filepath.Join(parent, e.Name())}
		if t.lockFile, err = lock.AcquireDirExclusive(context.Background(), t.Path, 0); err == nil {
			abandoned = append(abandoned, t)
		}
	}
	_ = parentLock.Close() // deleting may take long
	for _, t := range abandoned {
		_ = t.removeAndUnlock()
	}
}

// Remove deletes the directory, and the common parent if it was the last.
func (t *OwnedTempDir) Remove() error {
	inParent := t.lockFile != nil
	err := t.removeAndUnlock()
	if inParent {
		_ = os.Remove(filepath.Dir(t.Path)) // fails if other directories are there
	}
	return err
}

// removeAndUnlock deletes the directory before it releases the lock.
func (t *OwnedTempDir) removeAndUnlock() error {
	err := durable.RemoveTree(t.Path)
	if t.lockFile != nil {
		err = errors.Join(err, t.lockFile.Close())
		t.lockFile = nil
	}
	return err
}
