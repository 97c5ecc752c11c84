package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// AgencyDir is the directory at the top of a tree that holds its marker. Git ignores it.
const AgencyDir = ".agency"

// Marker is a file that tells what kind of tree a directory is.
type Marker struct {
	Name    string
	content string
}

// The two kinds of tree.
var (
	Integration = Marker{"INTEGRATION_MARKER", "# This directory is an integration worktree.\n# Runners must never execute here.\n"}
	Sandbox     = Marker{"SANDBOX_MARKER", "# This directory is a sandbox worktree.\n# Runners may execute here.\n"}
)

// Path returns the path of the marker in a tree.
func (m Marker) Path(tree string) string { return filepath.Join(tree, AgencyDir, m.Name) }

// IsIn reports whether the tree has the marker: a regular file in a real directory. A symlink at either place means
// no.
func (m Marker) IsIn(tree string) (bool, error) {
	return m.isIn(func(name string) (fs.FileInfo, error) { return os.Lstat(filepath.Join(tree, name)) })
}

func (m Marker) isIn(lstat func(name string) (fs.FileInfo, error)) (bool, error) {
	dir, err := lstat(AgencyDir)
	if err == nil && dir.IsDir() {
		var fi fs.FileInfo
		if fi, err = lstat(filepath.Join(AgencyDir, m.Name)); err == nil {
			return fi.Mode().IsRegular(), nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		err = nil
	}
	return false, err
}

// Write creates the marker in a tree, exclusively, or leaves nothing behind, and reports whether it created the
// directory for it. All operations go through an open handle of the tree, so that no symlink in it can redirect the
// marker.
func (m Marker) Write(tree string) (madeDir bool, err error) {
	root, err := os.OpenRoot(tree)
	if err != nil {
		return false, fmt.Errorf("write marker: %w", err)
	}
	defer root.Close()
	err = root.Mkdir(AgencyDir, 0o755)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return false, fmt.Errorf("write marker: %w", err)
	}
	madeDir = err == nil
	if fi, err := root.Lstat(AgencyDir); err != nil || !fi.IsDir() {
		return madeDir, errors.Join(fmt.Errorf("write marker: %s is not a directory", filepath.Join(tree, AgencyDir)), err)
	}
	name := filepath.Join(AgencyDir, m.Name)
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		_, err = f.WriteString(m.content)
		if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
			return madeDir, nil
		}
		err = errors.Join(err, root.Remove(name))
	}
	if madeDir && root.Remove(AgencyDir) == nil { // not empty: another process put something there
		madeDir = false
	}
	return madeDir, fmt.Errorf("write marker: %w", err)
}

// Restore is Write for a tree in which other programs work and may have replaced the marker's directory. A file or
// symlink in its place is renamed first.
func (m Marker) Restore(path string) error {
	tree, err := OpenTree(path)
	if err != nil {
		return fmt.Errorf("write marker: %w", err)
	}
	top, err := tree.OpenTop()
	if err == nil {
		if fi, lookErr := top.Lstat(AgencyDir); lookErr == nil && !fi.Mode.IsDir() {
			err = top.WithWriteAccess(func() error { return moveAside(top, AgencyDir) })
		}
		err = errors.Join(err, top.Close())
	}
	if err := errors.Join(err, tree.Close()); err != nil {
		return fmt.Errorf("write marker: %w", err)
	}
	_, err = m.Write(path)
	return err
}

// moveAside renames an entry to an unused name.
func moveAside(in *DirHandle, name string) error {
	for n := 1; ; n++ {
		as := fmt.Sprintf("was-%s-%d", name[1:], n)
		if _, err := in.Lstat(as); errors.Is(err, fs.ErrNotExist) {
			return in.MoveAs(name, in, as)
		} else if err != nil {
			return err
		}
	}
}

// Remove deletes the marker, and its directory if that becomes empty.
func (m Marker) Remove(tree string) error {
	root, err := os.OpenRoot(tree)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	if fi, err := root.Lstat(AgencyDir); err != nil || !fi.IsDir() {
		return nil // no marker, and the entry is not ours
	}
	name := filepath.Join(AgencyDir, m.Name)
	if fi, err := root.Lstat(name); err == nil && !fi.Mode().IsRegular() {
		return nil // a symlink or directory of that name is not our marker
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = root.Remove(AgencyDir) // fails when not empty: other files are not ours
	return nil
}
