package core

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// AdoptWorktreeRequest asks to make an existing git worktree an integration worktree.
type AdoptWorktreeRequest struct {
	Path string // any path in the worktree; default: the caller's directory
	Name string // default: derived from its branch
}

// AdoptWorktree gives a git worktree, also the main one, a marker and a record. It changes nothing else in it.
func (r *Repository) AdoptWorktree(ctx context.Context, req AdoptWorktreeRequest) (Worktree, error) {
	if req.Name != "" {
		if err := CheckWorktreeName(req.Name); err != nil {
			return Worktree{}, err
		}
	}
	if err := r.CheckNotMoved(); err != nil {
		return Worktree{}, err
	}
	path := r.CallerDir
	if req.Path != "" {
		path = req.Path
		if !filepath.IsAbs(path) {
			path = r.CallerDir + "/" + path // not filepath.Join: that would remove ".." before symbolic links are followed
		}
	}
	repo, unlock, err := r.LockAndRecover(ctx)
	if err != nil {
		return Worktree{}, err
	}
	defer unlock()
	listing, err := worktree.List(ctx, repo)
	if err != nil {
		return Worktree{}, err
	}
	tree, err := gitWorktreeContaining(path, listing)
	var none *fault.NotWorktreeError
	if errors.As(err, &none) {
		err = r.explainUnlinked(none)
	}
	if err != nil {
		return Worktree{}, err
	}
	if known, err := r.worktreeAtPath(tree.Path); err != nil || known != nil {
		return r.restoreMarker(known, err)
	}
	branch := ShortBranch(tree.Branch)
	if req.Name == "" {
		req.Name = DeriveWorktreeName(branch, tree.Path)
	}
	if err := CheckWorktreeName(req.Name); err != nil {
		return Worktree{}, err
	}
	if err := r.checkAdoptable(ctx, repo, tree); err != nil {
		return Worktree{}, err
	}
	if err := r.checkNameFree(req.Name); err != nil {
		return Worktree{}, err
	}
	id, at, err := r.AllocateID(ctx, func(id string) (string, error) {
		path, _ := store.FirstExisting(r.Store.WorktreeDir(r.ID, id))
		return path, nil
	})
	if err != nil {
		return Worktree{}, err
	}
	if err := r.adoptTree(ctx, repo, store.WorktreeMeta{
		SchemaVersion: store.SchemaVersion, WorktreeID: id, Name: req.Name, RepoID: r.ID,
		Branch: branch, TreePath: tree.Path, CreatedAt: at, State: store.Present,
	}); err != nil {
		return Worktree{}, fmt.Errorf("adopt %s: %w", tree.Path, err)
	}
	return r.WorktreeFromEntry(r.Store.Worktree(r.ID, id, nil)), nil
}

// adoptTree is the transaction of an adoption: a creation without creating a tree.
func (r *Repository) adoptTree(ctx context.Context, repo *git.Repo, meta store.WorktreeMeta) (err error) {
	tx := r.BeginTx("worktree adopt")
	defer func() {
		if err != nil {
			RollbackTx(ctx, tx)
		}
	}()
	home := r.Store.WorktreeDir(r.ID, meta.WorktreeID)
	marked, err := guard.Integration.IsIn(meta.TreePath)
	if err != nil {
		return err
	}
	intent, err := r.claimID(ctx, tx, repo, home, func() error { return r.Store.CreateWorktreeDir(r.ID, meta.WorktreeID) }, store.Intent{
		ID: meta.WorktreeID, Command: "worktree adopt", Tree: meta.TreePath, Adopted: true, MarkerExisted: marked,
	})
	if err != nil {
		return err
	}
	if !marked { // a marker that existed before must not be removed by the undo
		if err := tx.Step(ctx, "marker", func() error {
			if _, err := guard.Integration.Write(meta.TreePath); err != nil {
				return err
			}
			tx.Undo("marker", func(context.Context) error { return guard.Integration.Remove(meta.TreePath) })
			return nil
		}); err != nil {
			return err
		}
	}
	return r.publishRecord(ctx, tx, home, intent, func() error { return r.Store.WriteWorktreeMeta(meta) })
}

// gitWorktreeContaining finds the innermost git worktree of the repository that contains a path.
func gitWorktreeContaining(path string, listing worktree.Listing) (worktree.Worktree, error) {
	place, err := guard.Locate(path)
	if err != nil {
		return worktree.Worktree{}, &fault.UnsafePathError{Path: path, Why: err.Error()}
	}
	if _, err := os.Stat(place.Path); err != nil {
		return worktree.Worktree{}, err
	}
	var found worktree.Worktree
	for _, w := range listing.Worktrees {
		rel := place.Relation(w.Path)
		if !w.Bare && (rel == guard.Same || rel == guard.Inside) && len(w.Path) > len(found.Path) {
			found = w
		}
	}
	if found.Path == "" {
		return worktree.Worktree{}, &fault.NotWorktreeError{Path: place.Path}
	}
	return found, nil
}

// explainUnlinked returns the error for a path that is in no worktree that git lists: e, or, if it is in the caller's linked
// worktree and that was moved without git, how to repair that.
func (r *Repository) explainUnlinked(e *fault.NotWorktreeError) error {
	top := r.unlinkedTree()
	if top == "" || !guard.IsOrContains(top, e.Path) {
		return e
	}
	known, err := r.worktreeAtPath(top)
	if err != nil {
		return err
	}
	if known != nil {
		return known.Err()
	}
	e.Unlinked = top
	return e
}

// checkAdoptable refuses trees that cannot be integration worktrees: sandboxes, trees that contain the data
// directory, trees without a commit or with a tracked .agency, and paths that are not valid UTF-8.
func (r *Repository) checkAdoptable(ctx context.Context, repo *git.Repo, tree worktree.Worktree) error {
	if !utf8.ValidString(tree.Path) {
		return &fault.InvalidError{What: "path", Value: tree.Path, Want: "valid UTF-8; records cannot hold it"}
	}
	place, err := guard.Locate(tree.Path)
	if err != nil {
		return &fault.UnsafePathError{Path: tree.Path, Why: err.Error()}
	}
	if rel := place.Relation(r.Store.SandboxDir(r.ID, "")); rel != guard.Disjoint {
		return &fault.IsSandboxError{Path: tree.Path} // by its path, even without a marker
	}
	for dir := range place.Ancestors {
		if marked, err := guard.Sandbox.IsIn(dir); err != nil {
			return &fault.UnsafePathError{Path: dir, Why: err.Error()}
		} else if marked {
			return &fault.IsSandboxError{Path: dir}
		}
	}
	data, err := guard.Locate(r.DataDir)
	if err != nil {
		return &fault.UnsafePathError{Path: r.DataDir, Why: err.Error()}
	}
	if rel := data.Relation(tree.Path); rel == guard.Same || rel == guard.Inside {
		return &fault.OverlapError{Path: data.Path, Relation: string(rel), Other: tree.Path}
	}
	head := tree.Head
	if head == "" || strings.Trim(head, "0") == "" {
		head = tree.Branch
	}
	found, err := repo.Lookup(ctx, head+"^{commit}", head+":"+guard.AgencyDir)
	switch {
	case err != nil:
		return err
	case found[0].Missing():
		return &fault.NoCommitError{Name: ShortBranch(tree.Branch), Unborn: true}
	case !found[1].Missing():
		return &fault.TrackedMarkerError{Commit: found[0].OID}
	}
	return nil
}

// worktreeAtPath finds the present integration worktree whose tree is at a path, or was moved there; nil if there is none.
func (r *Repository) worktreeAtPath(path string) (*Worktree, error) {
	entries, err := r.Store.Worktrees(r.ID, nil)
	if err != nil {
		return nil, err
	}
	place, err := guard.Locate(path)
	if err != nil {
		return nil, &fault.UnsafePathError{Path: path, Why: err.Error()}
	}
	for _, e := range entries {
		if w, found := r.worktreeIfAt(e, place); found {
			return &w, nil
		}
	}
	return nil, nil
}

// restoreMarker handles the adoption of a worktree that is adopted already. It writes the marker again if that was
// lost, as to "git clean -x"; else it returns an error.
func (r *Repository) restoreMarker(w *Worktree, err error) (Worktree, error) {
	if err != nil {
		return Worktree{}, err
	}
	if err := w.Err(); err != nil {
		return Worktree{}, err
	}
	marked, err := guard.Integration.IsIn(w.TreePath)
	if err != nil {
		return Worktree{}, err
	}
	if marked {
		return Worktree{}, &fault.AdoptedError{Path: w.TreePath, Name: w.Name}
	}
	_, err = guard.Integration.Write(w.TreePath)
	return *w, err
}

// DeriveWorktreeName makes a worktree name from a branch, or from the directory if there is no branch.
func DeriveWorktreeName(branch, path string) string {
	from := branch
	if from == "" {
		from = filepath.Base(path)
	}
	name := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			return c
		case c >= 'A' && c <= 'Z':
			return c - 'A' + 'a'
		}
		return '-'
	}, from)
	name = strings.Trim(name, "-")
	return name[:min(len(name), 40)]
}
