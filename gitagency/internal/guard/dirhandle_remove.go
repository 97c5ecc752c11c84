package guard

import (
	"errors"
	"fmt"
	"io/fs"
)

// RemoveAll removes an entry with everything in it, including directories without owner permissions. The depth is not
// limited by descriptors or path length: directories below a certain level are first moved up to the top.
func (f *DirHandle) RemoveAll(name string) error {
	if done, err := f.removeNonDir(name); done {
		return err
	}
	r := &treeRemoval{top: f, name: name, queue: []string{name}}
	for len(r.queue) > 0 {
		next := r.queue[len(r.queue)-1]
		r.queue = r.queue[:len(r.queue)-1]
		if err := r.removeDir(f, next, 0); err != nil {
			return err
		}
	}
	return nil
}

// removeNonDir removes an entry that is not a directory. It reports false, and removes nothing, for a directory; a
// missing entry counts as removed.
func (f *DirHandle) removeNonDir(name string) (bool, error) {
	fi, err := f.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return true, err
	case fi.Mode.IsDir():
		return false, nil
	}
	if err := f.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return true, err
	}
	return true, nil
}

// treeRemoval is the state of one RemoveAll.
type treeRemoval struct {
	top        *DirHandle
	name       string
	queue      []string // directories in top that are still to be removed
	movedCount int      // number of directories moved to top
}

// maxOpenDirs is how many levels of a tree are removed recursively, each with an open directory.
const maxOpenDirs = 32

func (r *treeRemoval) removeDir(in *DirHandle, name string, depth int) error {
	if err := r.removeContents(in, name, depth); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := in.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeContents removes everything in a directory.
func (r *treeRemoval) removeContents(in *DirHandle, name string, depth int) (err error) {
	dir, err := in.OpenDirForce(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if fi, err := dir.Stat(); err != nil {
		return err
	} else if fi.Mode&0o700 != 0o700 {
		_ = dir.Chmod(fi.Mode | 0o700) // a failure shows up when the contents are removed
	}
	names, err := dir.Names()
	if err != nil {
		return err
	}
	for _, child := range names {
		done, err := dir.removeNonDir(child)
		switch {
		case done:
		case depth < maxOpenDirs:
			err = r.removeDir(dir, child, depth+1)
		default:
			err = r.moveToTop(dir, child)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// moveToTop moves a directory into the top directory and queues it for removal.
func (r *treeRemoval) moveToTop(in *DirHandle, name string) error {
	for {
		r.movedCount++
		as := fmt.Sprintf("%s.%d", r.name, r.movedCount)
		if _, err := r.top.Lstat(as); err == nil {
			continue // name is in use
		}
		_ = in.GrantOwnerAccess(name) // moving a directory needs write permission on it
		if err := in.MoveAs(name, r.top, as); err != nil {
			return err
		}
		r.queue = append(r.queue, as)
		return nil
	}
}
