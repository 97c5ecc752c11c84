package core

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// Creation holds the values in which creating a sandbox differs from creating an integration worktree.
type Creation struct {
	Verb          string
	RecordDir     string         // directory of the record
	MakeRecordDir func() error   // makes RecordDir; fails if it exists
	Spec          changeset.Spec // tree, branch and start commit
	Backend       changeset.Backend
	SourceTree    string // worktree whose unchanged files are copied instead of checked out; may be empty
	SourceID      string // id of that integration worktree; empty if it has no record
	Marker        guard.Marker
	FillTree      func() error // writes more files to the tree and beside it; may be nil
	UndoFill      func() error // removes the files beside the tree; may be nil
	CopyFiles     func() error // copies ignored files of another tree into the tree; may be nil
	WriteRecord   func() error // writes meta.json

	// Lock is released while files are written, which takes the longest; nil if the caller needs it all the time.
	Lock *HeldLock
	// Recheck repeats, after that, the checks that another command may have invalidated; required with Lock.
	Recheck func() error
}

// CreateTree is the one transaction that creates trees, those of sandboxes and of integration worktrees. The caller
// holds the repository lock and has checked that every name in c is free and every path safe. Until step 10 is done
// no other process sees the new tree as existing; a failure or cancellation undoes the steps, last one first.
func (r *Repository) CreateTree(ctx context.Context, repo *git.Repo, c Creation) (err error) {
	tx := r.BeginTx(c.Verb)
	var intent *store.LockedIntent
	defer func() {
		if err != nil {
			r.undoCreateTree(ctx, tx, c, intent)
		}
	}()
	if c.Spec.Source, err = r.checkoutSource(repo, c.SourceTree, c.SourceID); err != nil {
		return err
	}

	// 1.–4. Claim the id and write intent.json, which names everything that the transaction may create.
	intent, err = r.claimID(ctx, tx, repo, c.RecordDir, c.MakeRecordDir, store.Intent{
		ID: c.Spec.ID, Command: c.Verb, Tree: c.Spec.Tree, Branch: c.Spec.Branch, BaseCommit: c.Spec.Base,
		Tip: c.Spec.Tip, FromSnapshot: c.Spec.FilesCommit,
	})
	if err != nil {
		return err
	}
	// 5. Make the parent directory of the tree, unless it is the record's directory.
	if around := filepath.Dir(c.Spec.Tree); around != c.RecordDir {
		if err := tx.Step(ctx, "sandbox-dir", func() error {
			if err := durable.Mkdir(around, 0o700); err != nil {
				return err
			}
			tx.Undo("sandbox-dir", func(context.Context) error { return durable.Remove(around) })
			return nil
		}); err != nil {
			return err
		}
	}
	// 6. Create the tree and the branch, and register the worktree with git.
	if err := c.Backend.Create(ctx, tx, c.Spec); err != nil {
		return err
	}
	// From now on the lock on the intent says that the creation is in progress, and only this process uses the new names.
	if c.Lock != nil {
		if err := tx.Step(ctx, "unlock", func() error { c.Lock.Release(intent.File()); return nil }); err != nil {
			return err
		}
	}
	if err := fillTree(ctx, tx, c); err != nil {
		return err
	}
	if c.Lock != nil {
		if err := tx.Step(ctx, "relock", func() error {
			if err := c.Lock.Retake(ctx); err != nil {
				return err
			}
			return c.Recheck()
		}); err != nil {
			return err
		}
	}
	// 10. Commit point: write meta.json.
	return r.publishRecord(ctx, tx, c.RecordDir, intent, c.WriteRecord)
}

// fillTree writes the files of a new tree, and syncs everything that its record refers to.
func fillTree(ctx context.Context, tx *undo.Tx, c Creation) error {
	if err := c.Backend.Fill(ctx, tx, c.Spec); err != nil {
		return err
	}
	// 7. Refuse a checkout that brings an .agency directory: it could pass for a marker.
	if err := tx.Step(ctx, "inspect", func() error { return checkNoMarker(c) }); err != nil {
		return err
	}
	if c.FillTree != nil {
		if c.UndoFill != nil {
			tx.Undo("fill", func(context.Context) error { return c.UndoFill() })
		}
		if err := tx.Step(ctx, "fill", c.FillTree); err != nil {
			return err
		}
	}
	if c.CopyFiles != nil {
		if err := tx.Step(ctx, "copy", c.CopyFiles); err != nil { // undone by removing the tree
			return err
		}
	}
	// 8. Write the marker: from here on the directory says what it is.
	if err := tx.Step(ctx, "marker", func() error { _, err := c.Marker.Write(c.Spec.Tree); return err }); err != nil {
		return err
	}
	// 9. Sync to disk everything that the record refers to, so that no power failure after step 10 can lose it.
	return tx.Step(ctx, "sync", func() error {
		if err := durable.Sync(filepath.Join(c.Spec.Tree, guard.AgencyDir)); err != nil {
			return err
		}
		return c.Backend.Sync(c.Spec)
	})
}

// undoCreateTree undoes a failed creation, under the repository lock. Without the lock it leaves everything to doctor, which
// finds the intent.
func (r *Repository) undoCreateTree(ctx context.Context, tx *undo.Tx, c Creation, intent *store.LockedIntent) {
	if c.Lock == nil {
		RollbackTx(ctx, tx)
		return
	}
	err := c.Lock.Retake(context.WithoutCancel(ctx))
	if err == nil {
		RollbackTx(ctx, tx)
		return
	}
	err = errors.Join(err, intent.Abandon()) // the lock was released after the intent was written
	r.Warn("the incomplete tree of %s is left, because the repository lock cannot be taken: %v; 'git agency doctor --fix %s' removes it", c.Spec.ID, err, c.Spec.ID)
}

// claimID begins a creation: it makes the directories of the repository and of the record, writes the intent and adds
// the exclude pattern that hides markers.
func (r *Repository) claimID(ctx context.Context, tx *undo.Tx, repo *git.Repo, home string, ensure func() error, intent store.Intent) (*store.LockedIntent, error) {
	var open *store.LockedIntent
	if err := tx.Step(ctx, "repo-dir", func() error {
		if _, there := store.FirstExisting(r.Store.RepoDir(r.ID)); !there {
			tx.Undo("repo-dir", func(context.Context) error { return r.Store.RemoveUnusedRepo(r.ID) })
		}
		return r.Store.EnsureRepo(r.ID, r.CommonDir, r.Now())
	}); err != nil {
		return nil, err
	}
	// mkdir fails if the directory exists; success makes the id ours.
	if err := tx.Step(ctx, "record-dir", func() error {
		if err := ensure(); err != nil {
			return err
		}
		tx.Undo("record-dir", func(context.Context) error { return durable.RemoveTree(home) })
		return nil
	}); err != nil {
		return nil, err
	}
	// The intent lists what is about to be created, so that it can be undone if this process is killed.
	if err := tx.Step(ctx, "intent", func() error {
		intent.PID, intent.StartedAt = os.Getpid(), r.Now()
		var err error
		if intent.ExcludeBefore, err = repo.ExcludeState(ExcludePattern); err != nil {
			return err
		}
		if open, err = store.WriteIntent(home, intent); err != nil {
			return err
		}
		tx.Undo("intent", func(context.Context) error { return open.Remove() })
		return nil
	}); err != nil {
		return nil, err
	}
	// Markers must not show in git status, in any worktree.
	return open, tx.Step(ctx, "exclude", func() error {
		undo, err := repo.AddExclude(ExcludePattern)
		if undo != nil {
			tx.Undo("exclude", func(context.Context) error {
				if alone, err := r.hasNoTreeBut(intent.ID); err != nil || !alone {
					return err // one that was created meanwhile needs the pattern
				}
				return undo()
			})
		}
		return err
	})
}

// ExcludePattern is the line in info/exclude that keeps markers out of git status in every worktree.
const ExcludePattern = "/" + guard.AgencyDir + "/"

// publishRecord is the commit point of a creation: it writes the record, then removes the intent.
func (r *Repository) publishRecord(ctx context.Context, tx *undo.Tx, home string, intent *store.LockedIntent, record func() error) error {
	if err := tx.Step(ctx, "record", func() error {
		tx.Undo("record", func(context.Context) error { return store.RemoveMeta(home) })
		return record()
	}); err != nil {
		return err
	}
	tx.Commit()
	// An intent beside a record is ignored, so a failure to remove it is only a warning.
	if err := intent.Remove(); err != nil {
		r.Warn("%s: %v", home, err)
	}
	return nil
}

// AllocateID generates ids until taken reports no collision: two ids in the same second are normal. taken returns the
// path or ref that already uses the id.
func (r *Repository) AllocateID(ctx context.Context, taken func(id string) (what string, err error)) (string, time.Time, error) {
	const tries = 100
	what := ""
	for range tries {
		if err := context.Cause(ctx); err != nil {
			return "", time.Time{}, err
		}
		id, at, err := r.ids.New()
		if err != nil {
			return "", time.Time{}, err
		}
		if what, err = taken(id); err != nil {
			return "", time.Time{}, err
		}
		if what == "" {
			return id, at, nil
		}
	}
	return "", time.Time{}, &fault.NoFreeIDError{Tries: tries, Taken: what}
}

// ShortIDCheck returns a function that reports which invocation an id could be confused with if only its part after the
// dash were given; empty for none. It gives up after a number of ids, so that ids do not run out.
func (r *Repository) ShortIDCheck() (func(id string) (other string), error) {
	all, err := r.Store.InvocationIDs(r.ID)
	if err != nil {
		return nil, err
	}
	taken := map[string]string{}
	for _, id := range all {
		taken[ids.Suffix(id)] = id
	}
	const tries = 50
	asked := 0
	return func(id string) string {
		if asked++; asked > tries {
			return ""
		}
		if suffix := ids.Suffix(id); strings.HasPrefix(id, suffix) { // the year, with which all ids begin
			return suffix
		}
		return taken[ids.Suffix(id)]
	}, nil
}

// UndoCreation removes the leftovers of an interrupted creation. Paths and names are derived from the id, never read
// from intent.json: that is a file that may have been changed, and everything it names would be removed.
func (r *Repository) UndoCreation(ctx context.Context, repo *git.Repo, home string, spec changeset.Spec) error {
	if err := CheckParentResolved(spec.Tree); err != nil {
		return err
	}
	if err := r.checkUnmodifiedTree(ctx, repo, spec); err != nil {
		return err
	}
	spec.Scratch = home
	if err := WorktreeBackend(repo).RemoveIncomplete(ctx, spec); err != nil {
		return err
	}
	if around := filepath.Dir(spec.Tree); around != home {
		if err := durable.Remove(around); err != nil {
			return err
		}
	}
	return durable.RemoveTree(home)
}

// hasNoTreeBut reports whether the repository has no worktree, invocation or sandbox with another id.
func (r *Repository) hasNoTreeBut(id string) (bool, error) {
	for _, kind := range []string{"worktrees", "invocations", "sandboxes"} {
		found, err := r.Store.ListIDs(r.ID, kind)
		if err != nil || slices.ContainsFunc(found, func(other string) bool { return other != id }) {
			return false, err
		}
	}
	return true, nil
}

// removeUnusedRepoDir removes the data of a repository and its exclude pattern after the first creation in it was
// undone. It does nothing if the repository has any worktree, invocation or sandbox.
func (r *Repository) removeUnusedRepoDir(repo *git.Repo, intent store.Intent) error {
	if unused, err := r.hasNoTreeBut(""); err != nil || !unused {
		return err
	}
	if err := repo.RemoveExclude(ExcludePattern, intent.ExcludeBefore); err != nil {
		return err
	}
	return r.Store.RemoveUnusedRepo(r.ID)
}

// checkUnmodifiedTree refuses a tree that was changed although its creation never finished. Only a tree with a marker
// is examined: the marker is written last, and before that git reports files as changed that are not checked out yet.
func (r *Repository) checkUnmodifiedTree(ctx context.Context, repo *git.Repo, spec changeset.Spec) error {
	for _, m := range []guard.Marker{guard.Sandbox, guard.Integration} {
		marked, err := m.IsIn(spec.Tree)
		if err != nil || !marked {
			continue
		}
		untouched, err := r.isUnmodifiedTree(ctx, repo, spec)
		if err != nil {
			return err
		}
		if !untouched {
			return &fault.ModifiedTreeError{Path: spec.Tree}
		}
	}
	return nil
}

// isUnmodifiedTree reports whether a tree holds exactly the files that its creation wrote.
func (r *Repository) isUnmodifiedTree(ctx context.Context, repo *git.Repo, spec changeset.Spec) (bool, error) {
	subject := git.WorktreeSpec{Name: spec.ID, Dir: spec.Tree, Branch: spec.Branch, Base: spec.Base}
	if spec.FilesCommit == "" {
		captured, err := r.CaptureTree(ctx, repo, subject)
		return !captured.Dirty && captured.Commit == spec.StartCommit(), err
	}
	// The tree was created from a snapshot, with uncommitted changes in it; the snapshot still holds them.
	subject, err := r.PrepareCapture(subject)
	if err != nil {
		return false, err
	}
	subject.TrustConfig = false // the record of the invocation that the snapshot is from may be gone, so its walls are unknown
	return snapshot.HoldsWorktree(ctx, repo, spec.FilesCommit, subject)
}

// checkNoMarker refuses a checkout that contains .agency, however it got there: tracked, tracked in another letter
// case on a case-insensitive file system, or written by a filter.
func checkNoMarker(c Creation) error {
	dirs, err := c.Backend.TopDirs(c.Spec)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if _, err := os.Lstat(filepath.Join(dir, guard.AgencyDir)); err == nil {
			return &fault.TrackedMarkerError{Commit: cmp.Or(c.Spec.FilesCommit, c.Spec.StartCommit())}
		} else if !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}
