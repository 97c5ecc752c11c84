package core

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// MissingTree is what git's worktree entries say about the missing tree of an adopted worktree.
type MissingTree struct {
	MovedTo    string // path that the tree has now; empty if it is not known
	Unlinked   bool   // git's entry names the former path of the moved tree: it was moved without git
	Registered bool   // git's entry names the missing tree, and no other is known
	Locked     bool   // 'git worktree lock' has locked that entry
}

// findMissingTree looks for the missing tree of an adopted worktree. Entries and records that cannot be read are a warning.
func (r *Repository) findMissingTree(w Worktree) MissingTree {
	inv := TreeInventory{Repository: r, Entries: map[string]worktree.Entry{}}
	entries, err := worktree.Entries(r.Git)
	if err == nil {
		inv.Records, err = r.Store.Worktrees(r.ID, r.IsLocked)
	}
	if err != nil {
		r.Warn("whether %s was moved is not known: %v", w.TreePath, err)
		return MissingTree{}
	}
	for _, e := range entries {
		inv.Entries[e.Name] = e
	}
	if to := inv.FindMovedAdopted(w); to != "" {
		return MissingTree{MovedTo: to, Unlinked: to == r.unlinkedTree()}
	}
	e, registered := inv.FindEntry(w.TreePath)
	return MissingTree{Registered: registered, Locked: e.Locked}
}

// unlinkedTree returns the top of the caller's linked worktree if it was moved without git, so that git's entry names a path
// where nothing is; else empty.
func (r *Repository) unlinkedTree() string {
	top, name := r.Git.TopLevel, filepath.Base(r.Git.GitDir)
	if top == "" || r.Git.GitDir == r.Git.CommonDir {
		return ""
	}
	if here, _, err := r.LinkedEntry(top, name); err != nil || !here { // GIT_DIR names the entry
		return ""
	}
	if _, there := store.FirstExisting(worktree.RegisteredTree(r.Git, name)); there {
		return ""
	}
	return top
}

// LinkedEntry reads the .git file of a tree and reports its target: git's entry of that name in this repository, or another
// existing directory, whose path it returns.
func (r *Repository) LinkedEntry(tree, name string) (here bool, elsewhere string, err error) {
	if dir := unlistedDotGitDir(tree); dir != "" && (r.Git.AdminDir(name) == r.Git.UnlistedAdminDir(name) || store.IsDir(store.CloneOf(tree))) {
		return r.linkedUnlistedEntry(dir, name)
	}
	at, err := git.DotGitTarget(tree)
	switch {
	case err != nil || at == "" || !store.IsDir(at):
		return false, "", err
	case SameDirectory(at, r.Git.AdminDir(name)):
		return true, "", nil
	}
	return false, at, nil
}

// unlistedDotGitDir returns the directory with the .git file of a tree whose entry git does not list: an overlay has it behind the
// walls, and a clone beside the tree. It is empty for other trees.
func unlistedDotGitDir(tree string) string {
	switch {
	case store.IsDir(store.OverlayOf(tree)):
		return changeset.OverlayUpperDir(store.OverlayOf(tree))
	case store.IsDir(store.CloneOf(tree)):
		return store.CloneOf(tree)
	}
	return ""
}

// linkedUnlistedEntry is LinkedEntry for an entry that git does not list, given the directory of its .git file, which names the
// entry by the path that it has behind walls. An entry whose repository is gone counts as that of this repository.
func (r *Repository) linkedUnlistedEntry(dir, name string) (here bool, elsewhere string, err error) {
	at, err := git.DotGitTarget(dir)
	if err != nil || at == "" || !store.IsDir(r.Git.UnlistedAdminDir(name)) {
		return false, "", err
	}
	named := git.Repo{CommonDir: filepath.Dir(filepath.Dir(at))}
	if entry := named.UnlistedAdminDir(name); store.IsDir(entry) && !SameDirectory(entry, r.Git.AdminDir(name)) {
		return false, entry, nil
	}
	return true, "", nil
}

// TreeInventory compares git's worktree entries with the records of integration worktrees.
type TreeInventory struct {
	*Repository
	Entries map[string]worktree.Entry // git's worktree entries (.git/worktrees/<name>) by name
	Records []store.Entry[store.WorktreeMeta]
}

// FindEntry returns git's entry of a tree, and whether there is one.
func (i TreeInventory) FindEntry(tree string) (worktree.Entry, bool) {
	for _, e := range i.Entries {
		if e.Path == tree {
			return e, true
		}
	}
	return worktree.Entry{}, false
}

// external lists the main worktree and the linked worktrees of this repository that are outside every data directory.
func (i TreeInventory) external() []worktree.Worktree {
	trees := []worktree.Worktree{}
	if i.Git.TopLevel != "" && i.Git.GitDir == i.Git.CommonDir {
		trees = append(trees, worktree.Worktree{Path: i.Git.TopLevel, Branch: i.MainWorktreeRef()})
	}
	for _, name := range slices.Sorted(maps.Keys(i.Entries)) {
		e := i.Entries[name]
		// Other repositories and other data directories report their own trees.
		here, _, err := i.LinkedEntry(e.Path, name)
		if _, kept := DataDirOfEntry(name, e.Path); err == nil && here && !kept {
			trees = append(trees, e.Worktree)
		}
	}
	return trees
}

// MainWorktreeRef returns the full ref that HEAD of the main worktree names; empty when it is detached.
func (r *Repository) MainWorktreeRef() string {
	head, _ := git.ReadHead(r.CommonDir) // an unreadable HEAD names no branch
	return head.Branch
}

// Unrecorded lists the worktrees outside every data directory that carry the integration marker but have no record.
func (i TreeInventory) Unrecorded() []worktree.Worktree {
	var found []worktree.Worktree
	for _, w := range i.external() {
		if marked, err := guard.Integration.IsIn(w.Path); w.Path != "" && err == nil && marked && !i.HasRecord(w.Path) {
			found = append(found, w)
		}
	}
	return found
}

// HasRecord reports whether the record of a worktree that is not archived names a tree. A broken record counts.
func (i TreeInventory) HasRecord(tree string) bool {
	return slices.ContainsFunc(i.Records, func(e store.Entry[store.WorktreeMeta]) bool {
		return e.Record.State != store.Archived && (e.TreePath == tree || SameDirectory(e.TreePath, tree))
	})
}

// FindMovedAdopted returns the new path of an adopted tree: the caller's worktree, if git's entry of that names the former
// path; else the only candidate, a worktree on the branch of the record or, as HEAD of an adopted worktree moves, the only
// one that is left for the only lost record. An archived record has no tree; the tree that it names may have another record
// by now.
func (i TreeInventory) FindMovedAdopted(w Worktree) string {
	if !w.Adopted || w.State == store.Archived {
		return ""
	}
	for _, e := range i.external() {
		if e.Path != w.TreePath && SameDirectory(e.Path, w.TreePath) {
			return e.Path // a symlink was left at the old path
		}
	}
	if top := i.unlinkedTree(); top != "" && i.Entries[filepath.Base(i.Git.GitDir)].Path == w.TreePath && !i.HasRecord(top) {
		return top
	}
	unrecorded, to := i.Unrecorded(), ""
	for _, e := range unrecorded {
		if e.Branch == HeadsPrefix+w.Branch {
			if to != "" {
				return "" // ambiguous
			}
			to = e.Path
		}
	}
	if to == "" && len(unrecorded) == 1 && i.countLostAdopted() == 1 {
		return unrecorded[0].Path
	}
	return to
}

// countLostAdopted counts the records of adopted worktrees whose tree is missing.
func (i TreeInventory) countLostAdopted() int {
	lost := 0
	for _, e := range i.Records {
		if i.isAdopted(e) && e.Record.State != store.Archived && e.Defect == store.MissingTree {
			lost++
		}
	}
	return lost
}

// isAdopted reports whether the tree of a record is not where a created one is.
func (r *Repository) isAdopted(e store.Entry[store.WorktreeMeta]) bool {
	return e.TreePath != r.Store.WorktreeTreePath(r.ID, e.ID)
}
