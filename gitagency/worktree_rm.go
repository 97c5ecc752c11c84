package gitagency

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// RemoveWorktreeRequest asks to archive an integration worktree.
type RemoveWorktreeRequest struct {
	Worktree string // as for Repository.Worktree
	Force    bool   // also if it is dirty or has live sandboxes
}

// RemoveWorktreeResult describes an archived worktree.
type RemovedWorktree struct {
	Worktree
	TrashRef string `json:"trash_ref"` // ref of the content that was in the tree and in no branch; empty if there was none
	Undone   bool   `json:"undone"`    // an interrupted creation was undone: not even a record is left
}

// RemoveWorktree archives an integration worktree. Its branch stays. A created tree is removed, and its content that
// is in no branch is kept under a ref; an adopted tree only loses its marker. Doing it twice is fine.
func (r *Repository) RemoveWorktree(ctx context.Context, req RemoveWorktreeRequest) (RemovedWorktree, error) {
	wt, err := r.Worktree(req.Worktree)
	if err != nil {
		return RemovedWorktree{}, err
	}
	repo, unlock, err := r.lock(ctx)
	if err != nil {
		return RemovedWorktree{}, err
	}
	defer unlock()
	wt = r.worktree(r.store.Worktree(r.ID, wt.ID, nil)) // it may have changed while we waited for the lock

	if wt.Broken && wt.BrokenReason != string(store.MissingTree) {
		if err := r.undoWorktree(ctx, repo, wt); err != nil {
			return RemovedWorktree{}, err
		}
		return RemovedWorktree{Worktree: wt, Undone: true}, nil
	}
	return r.removeWorktree(ctx, repo, wt, req.Force)
}

// removeWorktree archives a worktree that has a record, or finishes an interrupted archiving. The caller holds the
// lock.
func (r *Repository) removeWorktree(ctx context.Context, repo *git.Repo, wt Worktree, force bool) (_ RemovedWorktree, err error) {
	ref, since := "", time.Now()
	if wt.State == store.Archived {
		since = time.Time{} // the start of the interrupted archiving is unknown
	}
	if wt.State != store.Archived || !wt.adopted && store.IsDir(wt.TreePath) { // archived, but its tree still exists and may have new work
		if ref, err = r.archive(ctx, repo, wt, force); err != nil {
			return RemovedWorktree{}, fmt.Errorf("archive worktree %q: %w", wt.Name, err)
		}
	}
	if err := r.removeArchived(ctx, repo, wt, since); err != nil {
		return RemovedWorktree{}, &CleanupError{Kind: "worktree", ID: wt.ID, Done: store.Archived, Err: err}
	}
	wt.State = store.Archived
	return RemovedWorktree{Worktree: wt, TrashRef: ref}, nil
}

// removeBrokenWorktree removes a broken worktree that cannot hold work: an interrupted creation or adoption.
func (r *Repository) undoWorktree(ctx context.Context, repo *git.Repo, wt Worktree) (err error) {
	var intent store.Intent
	switch {
	case wt.entry.Intent != nil:
		intent = *wt.entry.Intent
		err = r.abandonWorktree(ctx, repo, wt.ID, intent)
	case wt.BrokenReason == string(store.Incomplete):
		err = store.RemoveRemains(r.store.WorktreeDir(r.ID, wt.ID))
	default:
		return wt.Err()
	}
	if err == nil {
		err = r.leave(repo, intent)
	}
	if err != nil {
		return fmt.Errorf("undo the interrupted creation of %s: %w", wt.ID, err)
	}
	return nil
}

// undoWorktreeCreation undoes an interrupted creation or adoption. It follows intent.json only where that names
// nothing that another worktree could own.
func (r *Repository) abandonWorktree(ctx context.Context, repo *git.Repo, id string, intent store.Intent) error {
	entries, err := r.store.Worktrees(r.ID, nil)
	if err != nil {
		return err
	}
	home := r.store.WorktreeDir(r.ID, id)
	if intent.Adopted {
		if !intent.Marked {
			if err := r.unmark(ctx, repo, intent.Tree); err != nil {
				return err
			}
		}
		return durable.RemoveTree(home)
	}
	for _, e := range entries {
		if e.ID != id && heads+e.Record.Branch == intent.Branch {
			return &BrokenError{Kind: "worktree", ID: id, Reason: string(store.Incomplete), Detail: "its intent.json names the branch of worktree " + e.ID}
		}
	}
	name := strings.TrimSuffix(strings.TrimPrefix(intent.Branch, heads+branchRoot+"/"), "-"+ids.Suffix(id))
	if checkWorktreeName(name) != nil || intent.Branch != worktreeRef(name, id) {
		return &BrokenError{Kind: "worktree", ID: id, Reason: string(store.Incomplete), Detail: "its intent.json names the branch " + intent.Branch}
	}
	return r.abandon(ctx, repo, home, changeset.Spec{ID: id, Tree: r.store.WorktreeTreePath(r.ID, id), Branch: intent.Branch, Base: intent.Base})
}

// markArchived checks that a worktree can be archived, keeps the content that would be lost, and writes the new state
// to the record.
func (r *Repository) archive(ctx context.Context, repo *git.Repo, wt Worktree, force bool) (ref string, err error) {
	tx := r.begin("worktree rm")
	defer func() {
		if err != nil {
			rollback(ctx, tx)
		}
	}()
	if !wt.adopted {
		if err := checkReal(wt.TreePath); err != nil {
			return "", err
		}
		if err := r.checkNotMoved(repo, wt.ID, wt.TreePath); err != nil {
			return "", err
		}
	}
	live, err := r.liveIn(wt)
	if err != nil {
		return "", err
	}
	if len(live) > 0 && !force {
		return "", &LiveError{Name: wt.Name, Invocations: live}
	}
	if !wt.adopted {
		if ref, err = r.keepTree(ctx, tx, repo, wt, force); err != nil {
			return "", err
		}
	}
	if err := tx.Step(ctx, "record", func() error {
		tx.Undo("record", func(context.Context) error {
			return r.store.UpdateWorktreeMeta(r.ID, wt.ID, func(m *store.WorktreeMeta) { m.State = wt.State })
		})
		return r.store.UpdateWorktreeMeta(r.ID, wt.ID, func(m *store.WorktreeMeta) { m.State = store.Archived })
	}); err != nil {
		return "", err
	}
	tx.Commit()
	return ref, nil
}

// keepTreeInTrash keeps the content of a tree that is in no branch under its trash ref. It refuses a tree with
// uncommitted changes unless force is set.
func (r *Repository) keepTree(ctx context.Context, tx *undo.Tx, repo *git.Repo, wt Worktree, force bool) (ref string, err error) {
	var captured git.Captured
	if err := tx.Step(ctx, "capture", func() error {
		onto := ""
		if wt.State == store.Archived {
			if onto, err = r.kept(ctx, repo, wt.ID); err != nil {
				return err
			}
		}
		subject := wt.subject()
		subject.Onto = onto
		captured, err = r.capture(ctx, repo, subject)
		return err
	}); err != nil {
		return "", err
	}
	if captured.Dirty && !force {
		return "", &DirtyError{Path: wt.TreePath}
	}
	if captured.Commit == "" || captured.Commit == captured.Branch {
		return "", nil
	}
	ref = trashRef(wt.ID)
	return ref, tx.Step(ctx, "trash", func() error { return r.keep(ctx, tx, repo, ref, captured.Commit) })
}

// captureSubject returns the capture request of a created worktree.
func (w Worktree) subject() git.Subject {
	return git.Subject{
		Name: w.ID, Tree: w.TreePath, Branch: heads + w.Branch,
		Message: fmt.Sprintf("agency: what was in worktree %s when it was archived", w.Name),
	}
}

// removeMarker removes the marker of an adopted tree, unless the tree belongs to another repository or another
// integration worktree by now.
func (r *Repository) unmark(ctx context.Context, repo *git.Repo, tree string) error {
	if holds, err := r.holds(ctx, repo, tree); err != nil || !holds {
		return err
	}
	owner, err := r.worktreeAt(tree)
	if err != nil || owner != nil {
		return err
	}
	return guard.Integration.Remove(tree)
}

// isOwnWorktree reports whether a tree named by a record or an intent is a worktree of this repository: another tree
// may have taken its place, and a record is a file that any program of the user may have written.
func (r *Repository) holds(ctx context.Context, repo *git.Repo, tree string) (bool, error) {
	if at, err := git.LinkedTo(tree); err == nil && at != "" {
		return onePlace(at, r.CommonDir) || onePlace(filepath.Dir(filepath.Dir(at)), r.CommonDir), nil
	}
	// A tree that only core.worktree assigns to its repository has no .git.
	listing, err := repo.Worktrees(ctx)
	return slices.ContainsFunc(listing.Worktrees, func(w git.Worktree) bool { return onePlace(w.Path, tree) }), err
}

// removeArchivedTree removes the tree or marker of an archived worktree, its registration with git and leftover
// files. Each may be gone already.
func (r *Repository) removeArchived(ctx context.Context, repo *git.Repo, wt Worktree, since time.Time) error {
	home := r.store.WorktreeDir(r.ID, wt.ID)
	leftovers := step{"leftovers", func() error { return store.RemoveLeftovers(home) }}
	if wt.adopted {
		return r.forward(ctx, "worktree rm", []step{{"marker", func() error { return r.unmark(ctx, repo, wt.TreePath) }}, leftovers})
	}
	return r.forward(ctx, "worktree rm", []step{
		{"tree", func() error {
			if err := checkReal(wt.TreePath); err != nil {
				return err
			}
			return r.clear(ctx, repo, wt.subject(), since, nil)
		}},
		{"registration", func() error {
			return backend(repo).Unregister(changeset.Spec{ID: wt.ID, Tree: wt.TreePath, Scratch: home})
		}},
		leftovers,
	})
}

// liveInvocations lists the invocations of a worktree that have not ended.
func (r *Repository) liveIn(wt Worktree) ([]string, error) {
	entries, err := r.store.Invocations(r.ID, r.busy)
	if err != nil {
		return nil, err
	}
	var live []string
	for _, e := range entries {
		if e.Record.IntegrationWorktreeID == wt.ID && !ended(e.Record) {
			live = append(live, e.ID)
		}
	}
	return live, nil
}
