package core

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// FormerRecords describes the records of a repository under the id that it had at another path.
type FormerRecords struct {
	RepoID    string
	CommonDir string   // former path; empty if repo.json does not name it
	IDs       []string // ids that have any directory there
	Moved     []string // ids that an interrupted fix has moved here already
	Mounted   bool     // the former path is another mount of this directory, so the repository has not moved

	Replaced bool     // another repository is at the former path, and IDs are only those of this one
	Shared   []string // ids of the adopted worktrees of IDs whose paths are worktrees of the other repository now
}

// FormerRecords finds the records of this repository under former paths. Records name a repository by its path; ids in
// git's worktree entries and in trash refs connect them to this one. A repository that is still at a former path must know
// none of them: a copy has the ids of its original.
func (r *Repository) FormerRecords() ([]FormerRecords, error) {
	repos, err := r.Store.Repos()
	if err != nil {
		return nil, err
	}
	var found []FormerRecords
	if at := slices.IndexFunc(repos, func(own store.RepoRecord) bool { return own.RepoID == r.ID }); at >= 0 {
		if found, err = r.interruptedMoves(repos[at].Relocations, repos); err != nil {
			return nil, err
		}
	}
	for _, old := range repos {
		there := store.IsDir(old.CommonDir)
		if old.RepoID == r.ID || slices.ContainsFunc(found, func(f FormerRecords) bool { return f.RepoID == old.RepoID }) {
			continue
		}
		if there && !SameDirectory(old.CommonDir, r.CommonDir) {
			f, err := r.replacedRecords(old)
			if err != nil {
				return nil, err
			}
			if len(f.IDs) > 0 {
				found = append(found, f)
			}
			continue
		}
		f := FormerRecords{RepoID: old.RepoID, CommonDir: old.CommonDir}
		if f.IDs, err = r.Store.RecordedIDs(old.RepoID); err != nil {
			return nil, err
		}
		real, err := filepath.EvalSymlinks(old.CommonDir)
		f.Mounted = there && (err != nil || real != r.CommonDir)
		if f.Mounted || slices.ContainsFunc(f.IDs, r.hasTraces) {
			found = append(found, f)
		}
	}
	return found, nil
}

// interruptedMoves returns the records that a fix began to move here. Its note in repo.json says which: those of the moved
// ids do not connect the others to this repository any more.
func (r *Repository) interruptedMoves(begun []store.Relocation, repos []store.RepoRecord) ([]FormerRecords, error) {
	var found []FormerRecords
	for _, move := range begun {
		f := FormerRecords{RepoID: move.From, Replaced: move.Replaced, Shared: move.Copied}
		if at := slices.IndexFunc(repos, func(old store.RepoRecord) bool { return old.RepoID == move.From }); at >= 0 {
			f.CommonDir = repos[at].CommonDir
			f.Replaced = f.Replaced || store.IsDir(f.CommonDir) && !SameDirectory(f.CommonDir, r.CommonDir)
		}
		left, err := r.Store.RecordedIDs(move.From)
		if err != nil {
			return nil, err
		}
		for _, id := range move.IDs {
			if slices.Contains(left, id) {
				f.IDs = append(f.IDs, id)
			} else {
				f.Moved = append(f.Moved, id)
			}
		}
		found = append(found, f)
	}
	return found, nil
}

// replacedRecords finds the records of this repository under the path of another one, which was made there after this one
// had been moved. They are those of ids that this one has traces of, and the other one has none of.
func (r *Repository) replacedRecords(old store.RepoRecord) (FormerRecords, error) {
	f := FormerRecords{RepoID: old.RepoID, CommonDir: old.CommonDir, Replaced: true}
	all, err := r.Store.RecordedIDs(old.RepoID)
	if err != nil || !slices.ContainsFunc(all, r.hasTraces) {
		return f, err
	}
	other := &git.Repo{CommonDir: old.CommonDir, Config: r.Git.Config}
	if _, unreadable := store.FirstExisting(filepath.Join(old.CommonDir, "reftable")); unreadable {
		return f, nil // which refs it has is unknown
	}
	for _, id := range all {
		branch := HeadsPrefix + r.Store.Worktree(old.RepoID, id, nil).Record.Branch
		if branch == HeadsPrefix {
			branch = SandboxRef(id)
		}
		if !store.IsDir(other.AdminDir(id)) && lacksRef(other, branch) && lacksRef(other, TrashRef(id)) && r.hasTraces(id) {
			f.IDs = append(f.IDs, id)
		}
	}
	for _, id := range slices.Clone(f.IDs) {
		of := r.Store.Invocation(old.RepoID, id, nil).Record.IntegrationWorktreeID
		if !slices.Contains(all, of) || slices.Contains(f.IDs, of) || slices.Contains(f.Shared, of) {
			continue
		}
		at, err := git.DotGitTarget(r.Store.Worktree(old.RepoID, of, nil).TreePath)
		if err != nil && !errors.Is(err, fs.ErrNotExist) || store.IsDir(at) && (at == old.CommonDir || filepath.Dir(filepath.Dir(at)) == old.CommonDir) {
			f.Shared = append(f.Shared, of) // the path of the tree is that of a worktree of the other repository, or may be
		} else {
			f.IDs = append(f.IDs, of)
		}
	}
	return f, nil
}

// lacksRef reports whether a repository certainly does not have a ref.
func lacksRef(repo *git.Repo, ref string) bool {
	oid, known := repo.ReadRefFile(ref)
	return known && oid == ""
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
	entries, err := store.ListIDs(filepath.Join(r.CommonDir, "worktrees"))
	if err != nil || len(entries) == 0 {
		return false // a listing does not report unrelated problems
	}
	sandboxes, err := store.ListIDs(r.Store.SandboxesDir(r.ID))
	return err == nil && slices.ContainsFunc(entries, func(id string) bool {
		if _, there := slices.BinarySearch(sandboxes, id); there {
			return false
		}
		_, there := store.FirstExisting(r.Store.WorktreeDir(r.ID, id), r.Store.InvocationDir(r.ID, id), r.Store.SandboxDir(r.ID, id))
		return !there
	})
}
