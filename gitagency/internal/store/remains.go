package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// SandboxRemains describes the files that are left of a sandbox that has ended.
type SandboxRemains struct {
	HasTree      bool   // the tree, which may hold unsaved work
	HasWithdrawn bool   // the withdrawn tree, whose last check is still to be done
	HasOther     bool   // anything without work: a checked tree, a symlink, the directory itself
	ForeignPath  string // path that git-agency did not create
}

// Any reports whether anything is left.
func (r SandboxRemains) Any() bool { return r.HasTree || r.HasWithdrawn || r.HasOther }

// FindRemains looks for the files that are left of an invocation's sandbox.
func (s Store) FindRemains(repoID, invocationID string) (r SandboxRemains, err error) {
	dir, tree := s.SandboxDir(repoID, invocationID), s.SandboxTreePath(repoID, invocationID)
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, nil
	case errors.Is(err, syscall.ENOTDIR):
		return SandboxRemains{ForeignPath: dir}, nil
	case err != nil:
		return r, err
	}
	r.HasOther = true
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case path == tree && e.IsDir():
			r.HasTree = true
		case path == WithdrawnPath(tree) && e.IsDir():
			r.HasWithdrawn = true
		case e.IsDir() && slices.Contains([]string{RemovablePath(tree), s.WallsDir(repoID, invocationID), s.OverlayDir(repoID, invocationID), s.CloneDir(repoID, invocationID), s.PutLockDir(repoID, invocationID)}, path):
		case path == tree && e.Type()&fs.ModeSymlink != 0:
		default:
			r.ForeignPath = path
		}
	}
	return r, nil
}

// ListLeftovers lists the files that RemoveLeftovers would delete beside a record.
func ListLeftovers(dir string) (left []string, err error) {
	err = withoutUpdates(dir, func() error {
		left, err = durable.ListTemps(dir)
		return err
	})
	if _, there := FirstExisting(intentPath(dir)); there {
		left = append(left, intentPath(dir))
	}
	return left, err
}

// ListTemps lists what killed processes left directly in the directories of a repository: files being written and
// records being removed. The caller must hold the repository lock; otherwise these may belong to a running process.
func (s Store) ListTemps(repoID string) ([]string, error) {
	var all []string
	for _, dir := range []string{s.RepoDir(repoID), s.InvocationDir(repoID, ""), s.SandboxDir(repoID, ""), s.WorktreeDir(repoID, ""), s.TrashDir(repoID), s.ProbesDir(repoID)} {
		temps, err := durable.ListTemps(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, temps...)
	}
	return all, nil
}

// RemoveInvocation atomically removes the record of an invocation. ListTemps lists what a killed removal leaves
// behind.
func (s Store) RemoveInvocation(repoID, invocationID string) error {
	return durable.RemoveAtomically(s.InvocationDir(repoID, invocationID))
}

// HasRecord reports whether an invocation or a worktree with this id has a record.
func (s Store) HasRecord(repoID, id string) bool {
	_, there := FirstExisting(s.InvocationMetaPath(repoID, id), metaPath(s.WorktreeDir(repoID, id)))
	return there
}

// HasRepo reports whether there are records of a repository. If there are none, a missing record proves nothing: the
// data directory may be elsewhere, or not mounted.
func (s Store) HasRepo(repoID string) bool {
	fi, err := os.Lstat(filepath.Join(s.RepoDir(repoID), "repo.json"))
	return err == nil && fi.Mode().IsRegular()
}
