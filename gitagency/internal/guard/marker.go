package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Dir is the directory, at the top of a tree, that holds its marker. Git never sees it.
const Dir = ".agency"

// Marker says what a directory is.
type Marker struct {
	Name string
	text string
}

// The two kinds of tree.
var (
	Integration = Marker{"INTEGRATION_MARKER", "# This directory is an integration worktree.\n# Runners must never execute here.\n"}
	Sandbox     = Marker{"SANDBOX_MARKER", "# This directory is a sandbox worktree.\n# Runners may execute here.\n"}
)

// Path is where the marker of a tree lies.
func (m Marker) Path(tree string) string { return filepath.Join(tree, Dir, m.Name) }

// In reports whether the tree carries the marker: a regular file in a real directory. A symlink on
// the way means no.
func (m Marker) In(tree string) (bool, error) {
	return m.in(func(name string) (fs.FileInfo, error) { return os.Lstat(filepath.Join(tree, name)) })
}

func (m Marker) in(lstat func(name string) (fs.FileInfo, error)) (bool, error) {
	dir, err := lstat(Dir)
	if err == nil && dir.IsDir() {
		var fi fs.FileInfo
		if fi, err = lstat(filepath.Join(Dir, m.Name)); err == nil {
			return fi.Mode().IsRegular(), nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		err = nil
	}
	return false, err
}

// Write puts the marker into a tree, exclusively, or leaves nothing, and reports whether it made the
// directory for it.
// Everything happens below an open handle of the tree, so that no symlink in it, however it came
// there, makes the marker land elsewhere.
func (m Marker) Write(tree string) (madeDir bool, err error) {
	root, err := os.OpenRoot(tree)
	if err != nil {
		return false, fmt.Errorf("write marker: %w", err)
	}
	defer root.Close()
	err = root.Mkdir(Dir, 0o755)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return false, fmt.Errorf("write marker: %w", err)
	}
	madeDir = err == nil
	if fi, err := root.Lstat(Dir); err != nil || !fi.IsDir() {
		return madeDir, errors.Join(fmt.Errorf("write marker: %s is not a directory", filepath.Join(tree, Dir)), err)
	}
	name := filepath.Join(Dir, m.Name)
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		_, err = f.WriteString(m.text)
		if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
			return madeDir, nil
		}
		err = errors.Join(err, root.Remove(name))
	}
	if madeDir && root.Remove(Dir) == nil { // not empty: somebody was faster
		madeDir = false
	}
	return madeDir, fmt.Errorf("write marker: %w", err)
}

// Restore is Write for a tree in which others work, and may have put something else where the directory of the
// marker should be. That is moved out of the way, to a name of its own.
func (m Marker) Restore(path string) error {
	tree, err := OpenTree(path)
	if err != nil {
		return fmt.Errorf("write marker: %w", err)
	}
	top, err := tree.Top()
	if err == nil {
		if fi, lookErr := top.Lstat(Dir); lookErr == nil && !fi.Mode.IsDir() {
			err = top.Writable(func() error { return moveAway(top, Dir) })
		}
		err = errors.Join(err, top.Close())
	}
	if err := errors.Join(err, tree.Close()); err != nil {
		return fmt.Errorf("write marker: %w", err)
	}
	_, err = m.Write(path)
	return err
}

// moveAway gives something in a folder a name that nothing has.
func moveAway(in *Folder, name string) error {
	for n := 1; ; n++ {
		as := fmt.Sprintf("was-%s-%d", name[1:], n)
		if _, err := in.Lstat(as); errors.Is(err, fs.ErrNotExist) {
			return in.MoveAs(name, in, as)
		} else if err != nil {
			return err
		}
	}
}

// Remove takes the marker away, and its directory if nothing else lives there.
func (m Marker) Remove(tree string) error {
	root, err := os.OpenRoot(tree)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	if fi, err := root.Lstat(Dir); err != nil || !fi.IsDir() {
		return nil // there is no marker, and what is there is somebody else's
	}
	name := filepath.Join(Dir, m.Name)
	if fi, err := root.Lstat(name); err == nil && !fi.Mode().IsRegular() {
		return nil // somebody's link or directory is no marker
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = root.Remove(Dir) // not empty: somebody else's
	return nil
}
