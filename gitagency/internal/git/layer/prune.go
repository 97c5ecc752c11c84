package layer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
)

// Info describes a layer.
type Info struct {
	Name     string
	LastUsed time.Time
	Base     string // name of the layer that it is a delta over; empty if there is none
}

// List lists the layers in a directory, which need not exist.
func List(dir string) ([]Info, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []Info
	for _, e := range entries {
		fi, err := e.Info()
		if !isName(e.Name()) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		rec, _ := readRecord(dir, e.Name()) // a damaged one has no known base
		all = append(all, Info{Name: e.Name(), LastUsed: fi.ModTime(), Base: rec.Base})
	}
	return all, nil
}

// PruneRequest says which layers Prune may remove.
type PruneRequest struct {
	Dir    string    // directory of all layers; it need not exist
	Before time.Time // only layers that were last used before

	Only string // name of the only layer to remove; empty for all

	// Used returns the names of the layers that sandboxes use. It is called when no process can begin to use a layer that may be
	// removed.
	Used func() (map[string]bool, error)
}

// Prune removes the layers that were last used before a time, that no process holds, and that neither a sandbox nor a layer that
// stays needs; and the remains of killed processes. It returns the names of the removed layers.
func Prune(ctx context.Context, req PruneRequest) (removed []string, err error) {
	if !durable.IsDir(req.Dir) {
		return nil, nil
	}
	removed, err = withdrawUnused(ctx, req)
	err = errors.Join(err, removeRemains(ctx, req.Dir)) // deleting may take long, and needs no lock of the directory
	_ = os.Remove(req.Dir)                              // fails when not empty
	return removed, err
}

// withdrawUnused renames the layers that Prune removes, and returns their names. A layer comes before its base, so that a kill
// leaves none without its base.
func withdrawUnused(ctx context.Context, req PruneRequest) (removed []string, err error) {
	dirLock, err := lock.AcquireDirExclusive(ctx, req.Dir, -1) // no layer gets its name meanwhile, so that all that need a base are known
	if err != nil {
		return nil, err
	}
	locked := map[string]*os.File{}
	defer func() {
		for _, f := range locked {
			err = errors.Join(err, f.Close())
		}
		err = errors.Join(err, dirLock.Close())
	}()
	all, err := List(req.Dir)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		f, err := lockExpired(ctx, req, l)
		if err != nil {
			return nil, err
		}
		if f != nil {
			locked[l.Name] = f
		}
	}
	used, err := req.Used()
	if err != nil {
		return nil, err
	}
	needed, depths := map[string]bool{}, map[string]int{}
	for _, l := range all {
		stays := locked[l.Name] == nil || used[l.Name]
		chain, err := Open(req.Dir, l.Name)
		if err != nil && stays {
			return nil, err // the layers that it needs are not known
		}
		depths[l.Name] = len(chain.Lowers)
		for _, lower := range chain.Lowers {
			if stays {
				needed[filepath.Base(filepath.Dir(lower))] = true
			}
		}
	}
	for name := range locked {
		if !needed[name] {
			removed = append(removed, name)
		}
	}
	slices.SortFunc(removed, func(a, b string) int { return depths[b] - depths[a] })
	for i, name := range removed {
		if err := withdraw(filepath.Join(req.Dir, name)); err != nil {
			return removed[:i], err
		}
	}
	return removed, nil
}

// lockExpired locks a layer exclusively. It returns nil for one that is held by another process, or was used since.
func lockExpired(ctx context.Context, req PruneRequest, l Info) (*os.File, error) {
	if !l.LastUsed.Before(req.Before) || req.Only != "" && l.Name != req.Only {
		return nil, nil
	}
	f, err := lock.AcquireDirExclusive(ctx, filepath.Join(req.Dir, l.Name), 0)
	if errors.As(err, new(*lock.TimeoutError)) {
		return nil, nil
	}
	return f, err
}

// Remake makes a layer again that is missing or damaged, and returns its name. That is another one if settings that it was made
// with have changed since, such as core.autocrlf, filters or the umask: its files are those of a checkout with the present ones.
func Remake(ctx context.Context, r *git.Repo, dir, name string) (string, error) {
	if !isName(name) {
		return "", fmt.Errorf("%q is not the name of a layer", name)
	}
	tree, _, _ := strings.Cut(name, "-")
	req := Request{Dir: dir, Tree: tree}
	for _, req.SkipLFS = range []bool{false, true} { // the last one if it is neither: an agent may have made the commit
		m, err := newMaker(ctx, r, req)
		if err != nil {
			return "", err
		}
		if m.name == name {
			break
		}
	}
	if _, err := Open(dir, name); errors.As(err, new(*DamagedError)) {
		path := filepath.Join(dir, name)
		held, err := lock.AcquireDirExclusive(ctx, path, -1) // a start holds it for a moment
		if err != nil {
			return "", err
		}
		if err := errors.Join(withdraw(path), held.Close()); err != nil {
			return "", err
		}
	}
	made, _, release, err := Ensure(ctx, r, req)
	if err != nil {
		return "", err
	}
	return made.Name, release()
}
