package layer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/lock"
)

// Prune removes the layers that were last used before a time, that no process holds, and that neither a name in used nor a layer
// that stays needs; and the remains of killed processes. It returns the names of the removed layers.
func Prune(ctx context.Context, dir string, used map[string]bool, before time.Time) (removed []string, err error) {
	if !isDir(dir) {
		return nil, nil
	}
	removed, err = withdrawUnused(ctx, dir, used, before)
	return removed, errors.Join(err, removeRemains(ctx, dir)) // deleting may take long, and needs no lock of the directory
}

// withdrawUnused renames the layers that Prune removes, and returns their names. A layer comes before its base, so that a kill
// leaves none without its base.
func withdrawUnused(ctx context.Context, dir string, used map[string]bool, before time.Time) (removed []string, err error) {
	gate, err := lock.AcquireDirExclusive(ctx, dir, -1) // no layer gets its name meanwhile, so that all that need a base are known
	if err != nil {
		return nil, err
	}
	unused := map[string]*os.File{} // locked layers, by their names
	defer func() {
		for _, f := range unused {
			err = errors.Join(err, f.Close())
		}
		err = errors.Join(err, gate.Close())
	}()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	needed, depths := map[string]bool{}, map[string]int{}
	for _, e := range entries {
		name := e.Name()
		if !isName(name) {
			continue
		}
		f, err := lockUnused(ctx, filepath.Join(dir, name), used[name], before)
		if err != nil {
			return nil, err
		}
		if f != nil {
			unused[name] = f
		}
		chain, err := Open(dir, name)
		if err != nil && f == nil {
			return nil, err // the layers that it needs are not known
		}
		depths[name] = len(chain.Lowers)
		for _, lower := range chain.Lowers {
			if f == nil {
				needed[filepath.Base(filepath.Dir(lower))] = true
			}
		}
	}
	for name := range unused {
		if !needed[name] {
			removed = append(removed, name)
		}
	}
	slices.SortFunc(removed, func(a, b string) int { return depths[b] - depths[a] })
	for i, name := range removed {
		if err := withdraw(filepath.Join(dir, name)); err != nil {
			return removed[:i], err
		}
	}
	return removed, nil
}

// lockUnused locks a layer exclusively. It returns nil for one that is used, held by another process, or was used since.
func lockUnused(ctx context.Context, path string, used bool, since time.Time) (*os.File, error) {
	fi, err := os.Lstat(path)
	if err != nil || used || !fi.ModTime().Before(since) {
		return nil, err
	}
	f, err := lock.AcquireDirExclusive(ctx, path, 0)
	if errors.As(err, new(*lock.TimeoutError)) {
		return nil, nil
	}
	return f, err
}
