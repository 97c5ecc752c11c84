package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// Remains is what is still there of a sandbox that has ended.
type Remains struct {
	Tree    bool   // the tree, which may hold work
	Aside   bool   // the same on its way out, not yet looked at a last time
	Other   bool   // what holds none: a tree that was looked at, a link, the directory around them
	Strange string // a path that nothing of ours has made
}

// Any reports whether anything is there.
func (r Remains) Any() bool { return r.Tree || r.Aside || r.Other }

// Remains looks at what is left of the sandbox of an invocation.
func (s Store) Remains(repoID, invocationID string) (r Remains, err error) {
	dir, tree := s.SandboxDir(repoID, invocationID), s.SandboxTreePath(repoID, invocationID)
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, nil
	case errors.Is(err, syscall.ENOTDIR):
		return Remains{Strange: dir}, nil
	case err != nil:
		return r, err
	}
	r.Other = true
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case path == tree && e.IsDir():
			r.Tree = true
		case path == Aside(tree) && e.IsDir():
			r.Aside = true
		case path == Done(tree) && e.IsDir(), path == s.WallsDir(repoID, invocationID) && e.IsDir(), path == tree && e.Type()&fs.ModeSymlink != 0:
		default:
			r.Strange = path
		}
	}
	return r, nil
}

// Leftovers lists what RemoveLeftovers would find beside a record.
func Leftovers(dir string) ([]string, error) {
	left, err := durable.Temps(dir)
	if _, there := Taken(intentPath(dir)); there {
		left = append(left, intentPath(dir))
	}
	return left, err
}

// Temps lists what killed processes left directly in the directories of a repository: files that were
// being written and records that were being removed. Only who holds the repository lock knows that
// nobody is at it any more.
func (s Store) Temps(repoID string) ([]string, error) {
	var all []string
	for _, dir := range []string{s.RepoDir(repoID), s.InvocationDir(repoID, ""), s.SandboxDir(repoID, ""), s.WorktreeDir(repoID, "")} {
		temps, err := durable.Temps(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, temps...)
	}
	return all, nil
}

// RemoveInvocation removes the record of an invocation. From one moment to the next it is not there any
// more; what a killed process leaves of it is listed by Temps.
func (s Store) RemoveInvocation(repoID, invocationID string) error {
	return durable.RemoveAway(s.InvocationDir(repoID, invocationID))
}

// Records reports whether there is a record of an id, of whatever kind.
func (s Store) Records(repoID, id string) bool {
	_, there := Taken(s.InvocationMetaPath(repoID, id), metaPath(s.WorktreeDir(repoID, id)))
	return there
}

// Knows reports whether there are records of a repository. Where there are none, that one is missing
// says nothing: the data directory may be elsewhere, or not mounted.
func (s Store) Knows(repoID string) bool {
	fi, err := os.Lstat(filepath.Join(s.RepoDir(repoID), "repo.json"))
	return err == nil && fi.Mode().IsRegular()
}
