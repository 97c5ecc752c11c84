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
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
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
	if err != nil {
		return RemoveWorktreeResult{}, err
	}
	repo, unlock, err := r.lockAndRecover(ctx)
	if err != nil {
		return RemoveWorktreeResult{}, err
	}
	defer unlock()
	wt = r.worktreeFromEntry(r.store.Worktree(r.ID, wt.ID, nil)) // it may have changed while we waited for the lock

	if wt.Broken && wt.BrokenReason != string(store.MissingTree) {
		if err := r.removeBrokenWorktree(ctx, repo, wt); err != nil {
			return RemoveWorktreeResult{}, err
		}
		return RemoveWorktreeResult{Worktree: wt, Undone: true}, nil
	}
	return r.removeWorktree(ctx, repo, wt, req.Force)
}

// removeWorktree archives a worktree that has a record, or finishes an interrupted archiving. The caller holds the
// lock.
func (r *Repository) removeWorktree(ctx context.Context, repo *git.Repo, wt Worktree, force bool) (_ RemoveWorktreeResult, err error) {
	ref, since := "", time.Now()
	if wt.State == store.Archived {
		since = time.Time{} // the start of the interrupted archiving is unknown
	}
	if wt.State != store.Archived || !wt.adopted && store.IsDir(wt.TreePath) { // archived, but its tree still exists and may have new work
		if ref, err = r.markArchived(ctx, repo, wt, force); err != nil {
			return RemoveWorktreeResult{}, fmt.Errorf("archive worktree %q: %w", wt.Name, err)
		}
	}
	if err := r.removeArchivedTree(ctx, repo, wt, since); err != nil {
		return RemoveWorktreeResult{}, &CleanupError{Kind: "worktree", ID: wt.ID, Done: store.Archived, Err: err}
	}
	wt.State = store.Archived
	return RemoveWorktreeResult{Worktree: wt, TrashRef: ref}, nil
}

// removeBrokenWorktree removes a broken worktree that cannot hold work: an interrupted creation or adoption.
func (r *Repository) removeBrokenWorktree(ctx context.Context, repo *git.Repo, wt Worktree) (err error) {
	var intent store.Intent
	switch {
	case wt.entry.Intent != nil:
		intent = *wt.entry.Intent
		err = r.undoWorktreeCreation(ctx, repo, wt.ID, intent)
	case wt.BrokenReason == string(store.Incomplete):
		err = store.RemoveEmptyRecordDirs(r.store.WorktreeDir(r.ID, wt.ID))
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
	entries, err := r.store.Worktrees(r.ID, nil)
	if err != nil {
		return err
	}
	home := r.store.WorktreeDir(r.ID, id)
	if intent.Adopted {
		if !intent.MarkerExisted {
			if err := r.removeMarker(ctx, repo, intent.Tree); err != nil {
				return err
			}
		}
		return durable.RemoveTree(home)
	}
	for _, e := range entries {
		if e.ID != id && headsPrefix+e.Record.Branch == intent.Branch {
			return &BrokenError{Kind: "worktree", ID: id, Reason: string(store.Incomplete), Detail: "its intent.json names the branch of worktree " + e.ID}
		}
	}
	name := strings.TrimSuffix(strings.TrimPrefix(intent.Branch, headsPrefix+branchNamespace+"/"), "-"+ids.Suffix(id))
	if checkWorktreeName(name) != nil || intent.Branch != worktreeRef(name, id) {
		return &BrokenError{Kind: "worktree", ID: id, Reason: string(store.Incomplete), Detail: "its intent.json names the branch " + intent.Branch}
	}
	return r.undoCreation(ctx, repo, home, changeset.Spec{ID: id, Tree: r.store.WorktreeTreePath(r.ID, id), Branch: intent.Branch, Base: intent.BaseCommit})
}

// markArchived checks that a worktree can be archived, keeps the content that would be lost, and writes the new state
// to the record.
func (r *Repository) markArchived(ctx context.Context, repo *git.Repo, wt Worktree, force bool) (ref string, err error) {
	tx := r.beginTx("worktree rm")
	defer func() {
		if err != nil {
			rollbackTx(ctx, tx)
		}
	}()
	if !wt.adopted {
		if err := checkParentResolved(wt.TreePath); err != nil {
			return "", err
		}
		if err := r.checkTreeNotMoved(repo, wt.ID, wt.TreePath); err != nil {
			return "", err
		}
	}
	live, err := r.liveInvocations(wt)
	if err != nil {
		return "", err
	}
	if len(live) > 0 && !force {
		return "", &LiveSandboxesError{Name: wt.Name, Invocations: live}
	}
	if !wt.adopted {
		if ref, err = r.keepTreeInTrash(ctx, tx, repo, wt, force); err != nil {
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
func (r *Repository) keepTreeInTrash(ctx context.Context, tx *undo.Tx, repo *git.Repo, wt Worktree, force bool) (ref string, err error) {
	var captured snapshot.CaptureResult
	if err := tx.Step(ctx, "capture", func() error {
		onto := ""
		if wt.State == store.Archived {
			if onto, err = r.trashCommit(ctx, repo, wt.ID); err != nil {
				return err
			}
		}
		subject := wt.captureSubject()
		subject.Onto = onto
		captured, err = r.captureTree(ctx, repo, subject)
		return err
	}); err != nil {
		return "", err
	}
	if captured.Dirty && !force {
		return "", &DirtyError{Path: wt.TreePath}
	}
	if captured.Commit == "" || captured.Commit == captured.BranchTip {
		return "", nil
	}
	ref = trashRef(wt.ID)
	return ref, tx.Step(ctx, "trash", func() error { return r.keepCommit(ctx, tx, repo, ref, captured.Commit) })
}

// captureSubject returns the capture request of a created worktree.
func (w Worktree) captureSubject() git.WorktreeSpec {
	return git.WorktreeSpec{
		Name: w.ID, Dir: w.TreePath, Branch: headsPrefix + w.Branch,
		Message: fmt.Sprintf("agency: what was in worktree %s when it was archived", w.Name),
	}
}

// removeMarker removes the marker of an adopted tree, unless the tree belongs to another repository or another
// integration worktree by now.
func (r *Repository) removeMarker(ctx context.Context, repo *git.Repo, tree string) error {
	if holds, err := r.isOwnWorktree(ctx, repo, tree); err != nil || !holds {
		return err
	}
	owner, err := r.worktreeAtPath(tree)
	if err != nil || owner != nil {
		return err
	}
	return guard.Integration.Remove(tree)
}

// isOwnWorktree reports whether a tree named by a record or an intent is a worktree of this repository: another tree
// may have taken its place, and a record is a file that any program of the user may have written.
func (r *Repository) isOwnWorktree(ctx context.Context, repo *git.Repo, tree string) (bool, error) {
	if at, err := git.DotGitTarget(tree); err == nil && at != "" {
		return sameDirectory(at, r.CommonDir) || sameDirectory(filepath.Dir(filepath.Dir(at)), r.CommonDir), nil
	}
	// A tree that only core.worktree assigns to its repository has no .git.
	listing, err := repo.Worktrees(ctx)
	return slices.ContainsFunc(listing.Worktrees, func(w git.Worktree) bool { return sameDirectory(w.Path, tree) }), err
}

// removeArchivedTree removes the tree or marker of an archived worktree, its registration with git and leftover
// files. Each may be gone already.
func (r *Repository) removeArchivedTree(ctx context.Context, repo *git.Repo, wt Worktree, since time.Time) error {
	home := r.store.WorktreeDir(r.ID, wt.ID)
	leftovers := step{"leftovers", func() error { return store.RemoveLeftovers(home) }}
	if wt.adopted {
		return r.runSteps(ctx, "worktree rm", []step{{"marker", func() error { return r.removeMarker(ctx, repo, wt.TreePath) }}, leftovers})
	}
	return r.runSteps(ctx, "worktree rm", []step{
		{"tree", func() error {
			if err := checkParentResolved(wt.TreePath); err != nil {
				return err
			}
			return r.removeCapturedTree(ctx, repo, wt.captureSubject(), since, nil)
		}},
		{"registration", func() error {
			return worktreeBackend(repo).Unregister(changeset.Spec{ID: wt.ID, Tree: wt.TreePath, Scratch: home})
		}},
		leftovers,
	})
}

// liveInvocations lists the invocations of a worktree that have not ended.
func (r *Repository) liveInvocations(wt Worktree) ([]string, error) {
	entries, err := r.store.Invocations(r.ID, r.isLocked)
	if err != nil {
		return nil, err
	}
	var live []string
	for _, e := range entries {
		if e.Record.IntegrationWorktreeID == wt.ID && !hasEnded(e.Record) {
			live = append(live, e.ID)
		}
	}
	return live, nil
}
