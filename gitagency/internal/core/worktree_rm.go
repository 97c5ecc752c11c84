package core

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
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
type RemoveWorktreeResult struct {
	Worktree
	TrashRef string `json:"trash_ref"` // ref of the content that was in the tree and in no branch; empty if there was none
	Undone   bool   `json:"undone"`    // an interrupted creation was undone: not even a record is left
}

// RemoveWorktree archives an integration worktree. Its branch stays. A created tree is removed, and its content that
// is in no branch is kept under a ref; an adopted tree only loses its marker. Doing it twice is fine.
func (r *Repository) RemoveWorktree(ctx context.Context, req RemoveWorktreeRequest) (RemoveWorktreeResult, error) {
	wt, err := r.Worktree(req.Worktree)
	if err == nil && req.Worktree == "" && wt.Missing.MovedTo != "" {
		err = wt.Err() // its marker would stay in the tree
	}
	if err != nil {
		return RemoveWorktreeResult{}, err
	}
	repo, unlock, err := r.LockAndRecover(ctx)
	if err != nil {
		return RemoveWorktreeResult{}, err
	}
	defer unlock()
	wt = r.WorktreeFromEntry(r.Store.Worktree(r.ID, wt.ID, nil)) // it may have changed while we waited for the lock

	if wt.Broken && wt.BrokenReason != string(store.MissingTree) {
		if err := r.RemoveBrokenWorktree(ctx, repo, wt); err != nil {
			return RemoveWorktreeResult{}, err
		}
		return RemoveWorktreeResult{Worktree: wt, Undone: true}, nil
	}
	return r.RemoveWorktreeLocked(ctx, repo, wt, req.Force)
}

// RemoveWorktreeLocked archives a worktree that has a record, or finishes an interrupted archiving. The caller holds the
// lock.
func (r *Repository) RemoveWorktreeLocked(ctx context.Context, repo *git.Repo, wt Worktree, force bool) (_ RemoveWorktreeResult, err error) {
	ref, since := "", time.Now()
	if wt.State == store.Archived {
		since = time.Time{} // the start of the interrupted archiving is unknown
	}
	if wt.State != store.Archived || !wt.Adopted && store.IsDir(wt.TreePath) { // archived, but its tree still exists and may have new work
		if ref, err = r.markArchived(ctx, repo, wt, force); err != nil {
			return RemoveWorktreeResult{}, fmt.Errorf("archive worktree %q: %w", wt.Name, err)
		}
	}
	if err := r.RemoveArchivedTree(ctx, repo, wt, since); err != nil {
		return RemoveWorktreeResult{}, &fault.CleanupError{Kind: "worktree", ID: wt.ID, Done: store.Archived, Err: err}
	}
	wt.State = store.Archived
	return RemoveWorktreeResult{Worktree: wt, TrashRef: ref}, nil
}

// RemoveBrokenWorktree removes a broken worktree that cannot hold work: an interrupted creation or adoption.
func (r *Repository) RemoveBrokenWorktree(ctx context.Context, repo *git.Repo, wt Worktree) (err error) {
	var intent store.Intent
	switch {
	case wt.Entry.Intent != nil:
		intent = *wt.Entry.Intent
		err = r.undoWorktreeCreation(ctx, repo, wt.ID, intent)
	case wt.BrokenReason == string(store.Incomplete):
		err = store.RemoveEmptyRecordDirs(r.Store.WorktreeDir(r.ID, wt.ID))
	default:
		return wt.Err()
	}
	if err == nil {
		err = r.removeUnusedRepoDir(repo, intent)
	}
	if err != nil {
		return fmt.Errorf("undo the interrupted creation of %s: %w", wt.ID, err)
	}
	return nil
}

// undoWorktreeCreation undoes an interrupted creation or adoption. It follows intent.json only where that names
// nothing that another worktree could own.
func (r *Repository) undoWorktreeCreation(ctx context.Context, repo *git.Repo, id string, intent store.Intent) error {
	entries, err := r.Store.Worktrees(r.ID, nil)
	if err != nil {
		return err
	}
	home := r.Store.WorktreeDir(r.ID, id)
	if intent.Adopted {
		if !intent.MarkerExisted {
			if err := r.removeMarker(ctx, repo, intent.Tree); err != nil {
				return err
			}
		}
		return durable.RemoveTree(home)
	}
	for _, e := range entries {
		if e.ID != id && HeadsPrefix+e.Record.Branch == intent.Branch {
			return &fault.BrokenError{Kind: "worktree", ID: id, Reason: string(store.Incomplete), Detail: "its intent.json names the branch of worktree " + e.ID}
		}
	}
	name := strings.TrimSuffix(strings.TrimPrefix(intent.Branch, AgencyHeads), "-"+ids.Suffix(id))
	if CheckWorktreeName(name) != nil || intent.Branch != worktreeRef(name, id) {
		return &fault.BrokenError{Kind: "worktree", ID: id, Reason: string(store.Incomplete), Detail: "its intent.json names the branch " + intent.Branch + ", which is not its own"}
	}
	return r.UndoCreation(ctx, repo, home, changeset.Spec{ID: id, Tree: r.Store.WorktreeTreePath(r.ID, id), Branch: intent.Branch, Base: intent.BaseCommit})
}

// markArchived checks that a worktree can be archived, keeps the content that would be lost, and writes the new state
// to the record.
func (r *Repository) markArchived(ctx context.Context, repo *git.Repo, wt Worktree, force bool) (ref string, err error) {
	tx := r.BeginTx("worktree rm")
	defer func() {
		if err != nil {
			RollbackTx(ctx, tx)
		}
	}()
	if !wt.Adopted {
		if err := CheckParentResolved(wt.TreePath); err != nil {
			return "", err
		}
		if err := r.CheckTreeNotMoved(repo, wt.ID, wt.TreePath); err != nil {
			return "", err
		}
	}
	live, err := r.LiveInvocations(wt)
	if err != nil {
		return "", err
	}
	if len(live) > 0 && !force {
		return "", &fault.LiveSandboxesError{Name: wt.Name, Invocations: live}
	}
	if !wt.Adopted {
		if ref, err = r.keepTreeInTrash(ctx, tx, repo, wt, force); err != nil {
			return "", err
		}
	}
	if err := tx.Step(ctx, "record", func() error {
		tx.Undo("record", func(context.Context) error {
			return r.Store.UpdateWorktreeMeta(r.ID, wt.ID, func(m *store.WorktreeMeta) { m.State = wt.State })
		})
		return r.Store.UpdateWorktreeMeta(r.ID, wt.ID, func(m *store.WorktreeMeta) { m.State = store.Archived })
	}); err != nil {
		return "", err
	}
	tx.Commit()
	return ref, nil
}

// keepTreeInTrash keeps the content of a tree that is in no branch under its trash ref. It refuses a tree with
// uncommitted changes unless force is set.
func (r *Repository) keepTreeInTrash(ctx context.Context, tx *undo.Tx, repo *git.Repo, wt Worktree, force bool) (ref string, err error) {
	var captured snapshot.CaptureResult
	if err := tx.Step(ctx, "capture", func() error {
		onto := ""
		if wt.State == store.Archived {
			if onto, err = r.TrashCommit(ctx, repo, wt.ID); err != nil {
				return err
			}
		}
		subject := wt.CaptureSubject()
		subject.Onto = onto
		captured, err = r.CaptureTree(ctx, repo, subject)
		return err
	}); err != nil {
		return "", err
	}
	if captured.Dirty && !force {
		return "", &fault.DirtyError{Path: wt.TreePath}
	}
	if captured.Commit == "" || captured.Commit == captured.BranchTip {
		return "", nil
	}
	ref = TrashRef(wt.ID)
	return ref, tx.Step(ctx, "trash", func() error { return r.KeepCommit(ctx, tx, repo, ref, captured.Commit) })
}

// CaptureSubject returns the capture request of a created worktree.
func (w Worktree) CaptureSubject() git.WorktreeSpec {
	return git.WorktreeSpec{
		Name: w.ID, Dir: w.TreePath, Branch: HeadsPrefix + w.Branch,
		Message: fmt.Sprintf("agency: content of worktree %s when it was archived", w.Name),
	}
}

// removeMarker removes the marker of an adopted tree, unless the tree belongs to another repository or another
// integration worktree by now.
func (r *Repository) removeMarker(ctx context.Context, repo *git.Repo, tree string) error {
	if holds, err := r.IsOwnWorktree(ctx, repo, tree); err != nil || !holds {
		return err
	}
	owner, err := r.worktreeAtPath(tree)
	if err != nil || owner != nil {
		return err
	}
	return guard.Integration.Remove(tree)
}

// IsOwnWorktree reports whether a tree named by a record or an intent is a worktree of this repository: another tree
// may have taken its place, and a record is a file that any program of the user may have written.
func (r *Repository) IsOwnWorktree(ctx context.Context, repo *git.Repo, tree string) (bool, error) {
	if at, err := git.DotGitTarget(tree); err == nil && at != "" {
		return SameDirectory(at, r.CommonDir) || SameDirectory(filepath.Dir(filepath.Dir(at)), r.CommonDir), nil
	}
	// A tree that only core.worktree assigns to its repository has no .git.
	listing, err := worktree.List(ctx, repo)
	return slices.ContainsFunc(listing.Worktrees, func(w worktree.Worktree) bool { return SameDirectory(w.Path, tree) }), err
}

// RemoveArchivedTree removes the tree or marker of an archived worktree, its registration with git and leftover
// files. Each may be gone already.
func (r *Repository) RemoveArchivedTree(ctx context.Context, repo *git.Repo, wt Worktree, since time.Time) error {
	home := r.Store.WorktreeDir(r.ID, wt.ID)
	leftovers := Step{"leftovers", func() error { return store.RemoveLeftovers(home) }}
	if wt.Adopted {
		return r.RunSteps(ctx, "worktree rm", []Step{{"marker", func() error { return r.removeMarker(ctx, repo, wt.TreePath) }}, leftovers})
	}
	if err := CheckParentResolved(wt.TreePath); err != nil {
		return err
	}
	return r.RunSteps(ctx, "worktree rm", append(r.StepsToRemoveTree(ctx, repo, wt.CaptureSubject(), since, TrashOptions{}, nil),
		Step{"registration", func() error {
			return WorktreeBackend(repo).Unregister(changeset.Spec{ID: wt.ID, Tree: wt.TreePath, Scratch: home})
		}},
		leftovers,
	))
}

// LiveInvocations lists the ids of the invocations of a worktree that have not ended.
func (r *Repository) LiveInvocations(wt Worktree) ([]string, error) {
	entries, err := r.entries(false)
	if err != nil {
		return nil, err
	}
	var live []string
	for _, e := range entries {
		if e.Record.IntegrationWorktreeID == wt.ID && !e.Record.HasEnded() { // a broken one may have ended
			live = append(live, e.ID)
		}
	}
	return live, nil
}
