package core

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// FormerRecords describes the records of a repository under the id that it had at another path.
type FormerRecords struct {
	RepoID    string
	CommonDir string   // former path; empty if repo.json does not name it
	IDs       []string // ids that have any directory there
	Mounted   bool     // the former path is another mount of this directory, so the repository has not moved
}

// FormerRecords finds the records of this repository under former paths. Records name a repository by its path; ids in
// git's worktree entries and in trash refs connect them to this one. The repository at a former path must be gone: a copy
// has the ids of its original.
func (r *Repository) FormerRecords() ([]FormerRecords, error) {
	repos, err := r.Store.Repos()
	if err != nil {
		return nil, err
	}
	var formerly []string
	if at := slices.IndexFunc(repos, func(old store.RepoRecord) bool { return old.RepoID == r.ID }); at >= 0 {
		formerly = repos[at].FormerIDs
	}
	var found []FormerRecords
	for _, old := range repos {
		there := store.IsDir(old.CommonDir)
		if old.RepoID == r.ID || there && !SameDirectory(old.CommonDir, r.CommonDir) {
			continue
		}
		f := FormerRecords{RepoID: old.RepoID, CommonDir: old.CommonDir}
		if f.IDs, err = r.Store.RecordedIDs(old.RepoID); err != nil {
			return nil, err
		}
		real, err := filepath.EvalSymlinks(old.CommonDir)
		f.Mounted = there && (err != nil || real != r.CommonDir)
		if f.Mounted || slices.Contains(formerly, old.RepoID) || slices.ContainsFunc(f.IDs, r.hasTraces) {
			found = append(found, f)
		}
	}
	return found, nil
}

// hasTraces reports whether git has a worktree entry or a trash ref of an id. Trash refs are copied by 'git clone
// --mirror', so they count only where git-agency has been used.
func (r *Repository) hasTraces(id string) bool {
	if store.IsDir(r.Git.AdminDir(id)) {
		return true
	}
	kept, _ := r.Git.ReadRefFile(TrashRef(id)) // one that cannot be read is no proof
	return kept != "" && store.IsDir(r.LockDir())
}

// CheckNotMoved returns a *fault.MovedRepositoryError if the records of this repository are still those of another path.
func (r *Repository) CheckNotMoved() error {
	found, err := r.FormerRecords()
	if err != nil {
		return err
	}
	for _, f := range found {
		if !f.Mounted {
			return &fault.MovedRepositoryError{From: f.CommonDir, RepoID: f.RepoID}
		}
	}
	return nil
}

// explainMissing returns the error of a lookup that found nothing: a *fault.MovedRepositoryError in a moved repository, and
// err elsewhere.
func (r *Repository) explainMissing(err error) error {
	if !fault.Is[*fault.NotFoundError](err) && !fault.Is[*fault.NotIntegrationError](err) {
		return err
	}
	if moved := r.CheckNotMoved(); fault.Is[*fault.MovedRepositoryError](moved) {
		return moved
	}
	return err
}

// hasUnrecordedEntry reports whether git has a worktree entry that is named by an id without any directory in the records
// of this repository.
func (r *Repository) hasUnrecordedEntry() bool {
	entries, err := os.ReadDir(filepath.Join(r.CommonDir, "worktrees"))
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		id := e.Name()
		_, there := store.FirstExisting(r.Store.InvocationDir(r.ID, id), r.Store.WorktreeDir(r.ID, id), r.Store.SandboxDir(r.ID, id))
		return ids.Valid(id) && !there
	})
}
