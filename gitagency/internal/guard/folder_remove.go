package guard

import (
	"errors"
	"fmt"
	"io/fs"
)

// RemoveAll removes something with everything in it, also where somebody took his own permissions away, and
// however deep it is: further down than some levels a directory moves up first, so that neither descriptors
// nor the length of a path limit it.
func (f *Folder) RemoveAll(name string) error {
	if done, err := f.removed(name); done {
		return err
	}
	r := &removal{top: f, name: name, queue: []string{name}}
	for len(r.queue) > 0 {
		next := r.queue[len(r.queue)-1]
		r.queue = r.queue[:len(r.queue)-1]
		if err := r.clear(f, next, 0); err != nil {
			return err
		}
	}
	return nil
}

// removed removes what is no directory, or an empty one, and reports whether that was all.
func (f *Folder) removed(name string) (bool, error) {
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

// removal is a RemoveAll under way.
type removal struct {
	top    *Folder
	name   string
	queue  []string // what is to be removed from the top
	raised int      // how many directories were moved up
}

// deepest is how many directories are open at once while a tree is removed.
const deepest = 32

func (r *removal) clear(in *Folder, name string, depth int) error {
	if err := r.empty(in, name, depth); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := in.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// empty removes what is in a directory.
func (r *removal) empty(in *Folder, name string, depth int) (err error) {
	dir, err := in.Force(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if fi, err := dir.Stat(); err != nil {
		return err
	} else if fi.Mode&0o700 != 0o700 {
		_ = dir.Chmod(fi.Mode | 0o700) // what comes of that shows when it is emptied
	}
	names, err := dir.Names()
	if err != nil {
		return err
	}
	for _, child := range names {
		done, err := dir.removed(child)
		switch {
		case done:
		case depth < deepest:
			err = r.clear(dir, child, depth+1)
		default:
			err = r.raise(dir, child)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// raise moves a directory up beside the first, where it is removed in its turn.
func (r *removal) raise(in *Folder, name string) error {
	for {
		r.raised++
		as := fmt.Sprintf("%s.%d", r.name, r.raised)
		if _, err := r.top.Lstat(as); err == nil {
			continue // somebody has something of that name
		}
		_ = in.Widen(name) // only who may write in a directory may move it
		if err := in.MoveAs(name, r.top, as); err != nil {
			return err
		}
		r.queue = append(r.queue, as)
		return nil
	}
}
