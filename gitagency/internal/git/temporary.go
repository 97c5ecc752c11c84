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

// temporary is a directory for what goes away again, in the temporary directory of the system: whoever only looks need
// not be able to write to the repository.
//
// All those of one user lie in one directory, which is there while any of them is. Whoever made one holds it by a lock
// of the kernel's, so that those of the killed are known whatever their process ids have become; the next who needs one
// takes them away. So it has to be kept until it is removed: one that nothing refers to is let go of. Others than the user
// have no way in: neither to put something there, nor to hold what is dead.
type temporary struct {
	path string   // absolute: git runs somewhere else
	held *os.File // nil where nobody would look for it
}

// temporaryIn makes one in a directory, which is that of the system but in tests.
func temporaryIn(system string) (*temporary, error) {
	system, err := filepath.Abs(system)
	if err != nil {
		return nil, err
	}
	const tries = 10 // the last who leaves takes the one around it along
	err = fs.ErrNotExist
	for n := 0; n < tries && errors.Is(err, fs.ErrNotExist); n++ {
		var t *temporary
		if t, err = temporaryAmongOurs(filepath.Join(system, fmt.Sprintf("git-agency-%d", os.Geteuid()))); err == nil {
			return t, nil
		}
	}
	// Somebody else has that name, or nothing can be locked there.
	path, err := os.MkdirTemp(system, "git-agency-")
	return &temporary{path: path}, err
}

func tempDirectory() (*temporary, error) { return temporaryIn(os.TempDir()) }

// temporaryAmongOurs makes one in the directory that all of ours lie in.
func temporaryAmongOurs(ours string) (_ *temporary, err error) {
	switch err := os.Mkdir(ours, 0o700); {
	case errors.Is(err, fs.ErrExist):
		if err := onlyOurs(ours); err != nil {
			return nil, err
		}
		removeDead(ours)
	case err != nil:
		return nil, err
	}
	coming, err := lock.Occupy(context.Background(), ours, time.Second)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, coming.Close()) }()
	path, err := os.MkdirTemp(ours, "git-agency-")
	if err != nil {
		return nil, err
	}
	held, err := lock.Clear(context.Background(), path, 0)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return &temporary{path: path, held: held}, nil
}

// onlyOurs refuses a directory that others have made, or may write to. In one that is the system's nobody else can put
// another in its place.
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

// removeDead removes what the killed have left. It is a courtesy: what does not go now goes the next time.
func removeDead(ours string) {
	alone, err := lock.Clear(context.Background(), ours, 0) // nobody has made one and does not hold it yet
	if err != nil {
		return
	}
	var dead []temporary
	entries, _ := os.ReadDir(ours)
	for _, e := range entries {
		t := temporary{path: filepath.Join(ours, e.Name())}
		if t.held, err = lock.Clear(context.Background(), t.path, 0); err == nil {
			dead = append(dead, t)
		}
	}
	_ = alone.Close() // which may take long from here on
	for _, t := range dead {
		_ = t.removeAlone()
	}
}

// remove takes it away.
func (t *temporary) remove() error {
	amongOurs := t.held != nil
	err := t.removeAlone()
	if amongOurs {
		_ = os.Remove(filepath.Dir(t.path)) // unless somebody has one there
	}
	return err
}

func (t *temporary) removeAlone() error {
	err := durable.RemoveTree(t.path)
	if t.held != nil {
		err = errors.Join(err, t.held.Close())
		t.held = nil
	}
	return err
}
