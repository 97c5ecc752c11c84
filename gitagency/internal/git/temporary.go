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

// ownedTempDir is a temporary directory in that of the system, so that commands that only read need no write access to the
// repository.
//
// All directories of one user are in one parent, which exists while any of them does. The owner of a directory holds
// a flock on it, so that directories of killed processes are recognized whatever became of their process ids; the
// next process that needs one deletes them. So an ownedTempDir must stay referenced until it is removed: the garbage
// collector closes its file and releases the lock. Other users have no access: they can neither put anything there
// nor lock a dead directory.
type temporary struct {
	path string   // absolute: git runs in another directory
	held *os.File // the flock; nil for a directory outside of the common parent
}

// makeTempDirIn creates a directory in system, which is os.TempDir except in tests.
func temporaryIn(system string) (*temporary, error) {
	system, err := filepath.Abs(system)
	if err != nil {
		return nil, err
	}
	const tries = 10 // the last process that leaves removes the common parent
	err = fs.ErrNotExist
	for n := 0; n < tries && errors.Is(err, fs.ErrNotExist); n++ {
		var t *temporary
		if t, err = temporaryAmongOurs(filepath.Join(system, fmt.Sprintf("git-agency-%d", os.Geteuid()))); err == nil {
			return t, nil
		}
	}
	// The name of the parent is taken by another user, or the file system has no locks.
	path, err := os.MkdirTemp(system, "git-agency-")
	return &temporary{path: path}, err
}

func tempDirectory() (*temporary, error) { return temporaryIn(os.TempDir()) }

// makeLockedTempDir creates a directory in the common parent and locks it.
func temporaryAmongOurs(parent string) (_ *temporary, err error) {
	switch err := os.Mkdir(parent, 0o700); {
	case errors.Is(err, fs.ErrExist):
		if err := onlyOurs(parent); err != nil {
			return nil, err
		}
		removeDead(parent)
	case err != nil:
		return nil, err
	}
	parentLock, err := lock.Occupy(context.Background(), parent, time.Second)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, parentLock.Close()) }()
	path, err := os.MkdirTemp(parent, "git-agency-")
	if err != nil {
		return nil, err
	}
	held, err := lock.Clear(context.Background(), path, 0)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return &temporary{path: path, held: held}, nil
}

// checkPrivateDir refuses a directory that others have made or may write to. The sticky bit of the system's directory
// keeps others from replacing ours.
func onlyOurs(dir string) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || !fi.IsDir() || int64(st.Uid) != int64(os.Geteuid()) || fi.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is not ours alone", dir)
	}
	return nil
}

// removeAbandonedTempDirs deletes the directories of killed processes. Errors do not matter: the next process tries
// again.
func removeDead(parent string) {
	// With the exclusive lock no process is between creating a directory and locking it.
	parentLock, err := lock.Clear(context.Background(), parent, 0)
	if err != nil {
		return
	}
	var abandoned []temporary
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		t := temporary{path: filepath.Join(parent, e.Name())}
		if t.held, err = lock.Clear(context.Background(), t.path, 0); err == nil {
			abandoned = append(abandoned, t)
		}
	}
	_ = parentLock.Close() // deleting may take long
	for _, t := range abandoned {
		_ = t.removeAlone()
	}
}

// remove deletes the directory, and the common parent if it was the last.
func (t *temporary) remove() error {
	inParent := t.held != nil
	err := t.removeAlone()
	if inParent {
		_ = os.Remove(filepath.Dir(t.path)) // fails if other directories are there
	}
	return err
}

// removeAndUnlock deletes the directory before it releases the lock.
func (t *temporary) removeAlone() error {
	err := durable.RemoveTree(t.path)
	if t.held != nil {
		err = errors.Join(err, t.held.Close())
		t.held = nil
	}
	return err
}
