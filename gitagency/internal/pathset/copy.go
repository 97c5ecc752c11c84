package pathset

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/provision"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// copySet holds the copies of directories of a sandbox that is being started. They are made without the lock of the repository, in a
// directory that is locked itself: one whose lock is free was left by a process that was killed.
type copySet struct {
	repo *core.Repository
	dir  string   // empty until the first copy is made
	lock *os.File // of dir
}

// path returns the copy of the directory n.
func (c *copySet) path(n int) string { return filepath.Join(c.dir, strconv.Itoa(n)) }

// open makes the directory of the copies. The lock of the repository keeps other processes from removing it before it is locked.
func (c *copySet) open(ctx context.Context) error {
	if c.dir != "" {
		return nil
	}
	held, err := c.repo.HoldLock(ctx)
	if err != nil {
		return err
	}
	defer held.Close()
	dir := filepath.Join(c.repo.Store.PathCopiesDir(), rand.Text())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if c.lock, err = lock.AcquireDirExclusive(ctx, dir, 0); err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	c.dir = dir
	return nil
}

// add copies the directory n, and says so. In place of the paths for which omit returns true, the copy has an empty file or directory.
func (c *copySet) add(ctx context.Context, n int, p store.PathMeta) (omit func(path string) bool, err error) {
	c.repo.Warn("%s is copied: no overlay can be mounted on it: %s", p.Path, p.Copied)
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	if err := os.Mkdir(c.path(n), 0o700); err != nil {
		return nil, err
	}
	into, err := guard.Resolve(c.path(n))
	if err != nil {
		return nil, err
	}
	points := guard.MountsBelow(p.Path)
	for _, point := range points {
		c.repo.Warn("%s is not copied: it is a mount point, and read-only in the sandbox", point)
	}
	omit = func(path string) bool { return slices.Contains(points, filepath.Join(p.Path, path)) }
	special, err := provision.TreeCopy{From: p.Path, Into: into, Omit: omit}.Copy(ctx)
	var unreadable *provision.UnreadableError
	if errors.As(err, &unreadable) {
		why := fmt.Sprintf("no overlay can be mounted on it: %s; it cannot be copied either, because you may not read %s", p.Copied, filepath.Join(p.Path, unreadable.Path))
		return nil, &fault.UnsafePathError{Path: p.Path, Why: why}
	}
	if err != nil {
		return nil, fmt.Errorf("copy it: %w", err)
	}
	for _, name := range special {
		c.repo.Warn("%s is not copied: it is neither a file, a directory nor a symbolic link", filepath.Join(p.Path, name))
	}
	return omit, nil
}

// moveTo moves the copies to where the overlays of a sandbox have them.
func (c *copySet) moveTo(id string, paths []store.PathMeta) error {
	if c.dir == "" {
		return nil
	}
	if err := durable.SyncFileSystem(c.dir); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	wallsDir := c.repo.Store.WallsDir(c.repo.ID, id)
	for n, p := range paths {
		if p.Copied == "" {
			continue
		}
		at := walls.CopyOf(wallsDir, p.Path)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			return err
		}
		if err := os.Rename(c.path(n), at); err != nil {
			return err
		}
		if err := durable.Sync(filepath.Dir(at), wallsDir, filepath.Dir(wallsDir)); err != nil {
			return err
		}
	}
	return nil
}

// close removes the copies that were not moved. A failure is only a warning: the sandbox may exist by now, and the next command that
// takes the lock of the repository removes them.
func (c *copySet) close() {
	if c.dir == "" {
		return
	}
	if err := errors.Join(durable.RemoveTree(c.dir), c.lock.Close()); err != nil {
		c.repo.Warn("copies of directories are not removed yet: %v", err)
	}
}

// LeftoverCopies lists the directories of copies that killed processes left. The caller holds the lock of the repository.
func LeftoverCopies(r *core.Repository) (left []string, err error) {
	entries, err := os.ReadDir(r.Store.PathCopiesDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		dir := filepath.Join(r.Store.PathCopiesDir(), e.Name())
		held, err := lock.AcquireDirExclusive(context.Background(), dir, 0)
		if err != nil {
			continue // in use, or removed meanwhile
		}
		_ = held.Close()
		left = append(left, dir)
	}
	return left, nil
}
