package core

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// CheckPlacement refuses a path for a new tree that equals, contains or lies inside any of these: an integration
// worktree on record, a worktree that git lists, the git directory, and a directory with a marker of any repository.
// Symbolic links and bind mounts are resolved before paths are compared.
func (r *Repository) CheckPlacement(tree string, listing worktree.Listing) error {
	place, err := guard.Locate(tree)
	if err != nil {
		return &fault.UnsafePathError{Path: tree, Why: err.Error()}
	}
	others := []string{r.CommonDir}
	for _, w := range listing.Worktrees {
		others = append(others, w.Path)
	}
	worktrees, err := r.Store.Worktrees(r.ID, nil)
	if err != nil {
		return err
	}
	for _, w := range worktrees {
		if w.Record.State != store.Archived {
			others = append(others, w.TreePath)
		}
	}
	for _, other := range others {
		if rel := place.Relation(other); rel != guard.Disjoint {
			return &fault.OverlapError{Path: place.Path, Relation: string(rel), Other: other}
		}
	}
	if err := CheckUnmarked(place); err != nil {
		return err
	}
	if place.Path != tree {
		return &fault.UnsafePathError{Path: tree, Why: "leads to " + place.Path}
	}
	return nil
}

// ListIntegration lists the worktrees of the repository but those of sandboxes, which have directories of their own and may be
// thousands. The listing has no commits for worktrees on a branch.
func (r *Repository) ListIntegration(repo *git.Repo) (worktree.Listing, error) {
	sandboxes, err := r.Store.ListIDs(r.ID, "sandboxes")
	if err != nil {
		return worktree.Listing{}, err
	}
	slices.Sort(sandboxes)
	return worktree.ListWithoutGit(repo, func(name string) bool {
		_, ours := slices.BinarySearch(sandboxes, name)
		return ours && store.IsDir(r.Store.SandboxTreePath(r.ID, name)) // the user may have moved it
	})
}

// CheckUnmarked refuses a place that has a marker, of any repository, in it or in a directory above it.
func CheckUnmarked(place guard.Location) error {
	for dir := range place.Ancestors {
		for _, m := range []guard.Marker{guard.Integration, guard.Sandbox} {
			marked, err := m.IsIn(dir)
			if err != nil {
				return &fault.UnsafePathError{Path: dir, Why: err.Error()}
			}
			if marked {
				return &fault.OverlapError{Path: place.Path, Relation: string(place.Relation(dir)), Other: dir}
			}
		}
	}
	return nil
}

// CheckListingIntact refuses to continue if git's worktree list has an entry that git cannot read.
func CheckListingIntact(listing worktree.Listing) error {
	for _, p := range listing.Damaged {
		return &fault.CorruptEntryError{Path: p.Path, What: p.Problem}
	}
	return nil
}

// CheckParentResolved refuses a path of ours whose parent directory has become a symbolic link or lies below one:
// nothing may be read or removed through such a link. The last component may be anything.
func CheckParentResolved(path string) error {
	parent := filepath.Dir(path)
	real, err := guard.Resolve(parent)
	if err != nil {
		return &fault.UnsafePathError{Path: path, Why: err.Error()}
	}
	if real != parent {
		return &fault.UnsafePathError{Path: path, Why: "leads to " + filepath.Join(real, filepath.Base(path))}
	}
	return nil
}

// DataDirOfEntry returns the data directory of a git worktree entry, and whether its tree is laid out like one of
// ours: <data dir>/repos/<repo>/<kind>/<id>/tree.
func DataDirOfEntry(name, tree string) (string, bool) {
	around := filepath.Dir(tree)
	repos := filepath.Dir(filepath.Dir(filepath.Dir(around)))
	ours := ids.Valid(name) && filepath.Base(tree) == "tree" && filepath.Base(around) == name && filepath.Base(repos) == "repos"
	return filepath.Dir(repos), ours
}

// warnRecordsElsewhere warns, once, if the records are those of another path of this repository, or if the data directory
// has no records of this repository while git has worktree entries of ours in another data directory: an empty listing
// then means that the wrong data directory is used.
func (r *Repository) warnRecordsElsewhere() {
	if store.RepoID(r.CommonDir) == r.ID { // else it has no records and no worktrees of its own
		r.warnedElsewhere.Do(r.checkRecordsElsewhere)
	}
}

func (r *Repository) checkRecordsElsewhere() {
	_, there := store.FirstExisting(r.Store.RepoDir(r.ID))
	if there && !r.hasUnrecordedEntry() {
		r.warnForeignRecords()
		return
	}
	if _, used := store.FirstExisting(r.LockDir(), filepath.Join(r.CommonDir, "worktrees")); !used {
		return
	}
	var moved *fault.MovedRepositoryError
	if errors.As(r.CheckNotMoved(), &moved) {
		r.Warn("%v; 'git agency doctor --fix %s' moves them here", moved, moved.RepoID)
		return
	}
	entries, err := worktree.Entries(r.Git)
	if err != nil || there {
		return // a listing does not report unrelated problems
	}
	for _, e := range entries {
		if place, ours := DataDirOfEntry(e.Name, e.Path); ours {
			r.Warn("there are no records of this repository in %s, but git has worktrees of git-agency in %s; 'git agency doctor' says more", r.DataDir, place)
			return
		}
	}
}

// warnForeignRecords warns if there are records of live sandboxes or created worktrees while git has no linked
// worktree at all: they belong to an earlier repository at this path, because ids of repositories are made of paths.
func (r *Repository) warnForeignRecords() {
	if _, there := store.FirstExisting(filepath.Join(r.CommonDir, "worktrees"), r.Git.UnlistedAdminDir("")); there {
		return
	}
	sandboxes, err := r.Store.ListIDs(r.ID, "sandboxes")
	created, createdErr := r.Store.ListIDs(r.ID, "worktrees")
	if err != nil || createdErr != nil {
		return // a listing does not report unrelated problems
	}
	foreign := 0
	for _, id := range sandboxes {
		e := r.Store.Invocation(r.ID, id, r.IsLocked)
		if e.Defect == store.NoDefect && !e.BeingCreated && !e.Record.HasEnded() {
			foreign++
		}
	}
	for _, id := range created {
		e := r.Store.Worktree(r.ID, id, r.IsLocked)
		if w := r.WorktreeFromEntry(e); !w.Broken && !e.BeingCreated && w.State == store.Present && !w.Adopted {
			foreign++
		}
	}
	if foreign > 0 {
		r.Warn("git has no linked worktree here, but there are records of %d sandboxes and worktrees of an earlier repository at %s; 'git agency doctor' lists them and says how to keep their files", foreign, r.CommonDir)
	}
}

// SameDirectory reports whether two paths lead to the same directory, through any symlinks and mounts. A moved
// directory often leaves a symlink at its old path.
func SameDirectory(path, other string) bool {
	a, err := os.Stat(path)
	if err != nil {
		return false
	}
	b, err := os.Stat(other)
	return err == nil && os.SameFile(a, b)
}
