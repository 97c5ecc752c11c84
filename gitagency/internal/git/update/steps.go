package update

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"sort"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Lock writes the new files to a staging directory, and then locks the worktree's index against every git. If the index
// has changed since Begin read it, Lock inspects the worktree again. The error is an *OperationInProgressError if another
// process holds the index lock.
func (tx *Transaction) Lock(ctx context.Context) (err error) {
	if err := tx.beginStep(0, "lock"); err != nil {
		return err
	}
	defer func() { tx.endStep(err) }()
	tx.StartUpdateRef(ctx)
	if tx.checkout == nil {
		return nil
	}
	if tx.staging, err = tx.checkout.newStagingDir(ctx); err != nil {
		return err
	}
	if tx.draft, err = lockCheckoutIndex(ctx, tx.repo, tx.spec, tx.checkout.index.Perm); err != nil {
		return err
	}
	if err := tx.injectFault("locked"); err != nil {
		return err
	}
	stamp := ""
	if fi, err := os.Lstat(tx.spec.indexPath()); err == nil {
		stamp = durable.StatFingerprint(fi)
	}
	if stamp == tx.checkout.index.Stamp {
		return requireBranch(tx.repo, tx.spec)
	}
	now, err := inspectCheckout(ctx, tx.repo, tx.spec, true)
	if err != nil {
		return err
	}
	tx.checkout = now
	if err := tx.staging.remove(); err != nil {
		return err
	}
	tx.staging, err = tx.checkout.newStagingDir(ctx)
	return err
}

// lockCheckoutIndex creates the draft of the worktree's new index and locks the present one. It waits only briefly for a
// git that holds the lock, which may be stale.
func lockCheckoutIndex(ctx context.Context, r *git.Repo, u Update, perm fs.FileMode) (*git.IndexDraft, error) {
	f, err := os.OpenFile(u.indexPath()+index.DraftSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s: it belongs to an update that was not finished", u.indexPath()+index.DraftSuffix)
	}
	if err != nil {
		return nil, err
	}
	d := &git.IndexDraft{Index: u.indexPath(), File: f}
	if perm != 0 {
		err = f.Chmod(perm)
	}
	if err == nil {
		waitErr := r.LockWait.Until(ctx, func() bool { err = d.Lock(); return !errors.As(err, new(*git.LockedError)) })
		err = errors.Join(waitErr, err)
	}
	if err != nil {
		err = errors.Join(err, d.Drop())
		if errors.As(err, new(*git.LockedError)) && context.Cause(ctx) == nil {
			err = &OperationInProgressError{Worktree: u.Worktree, Operation: "index.lock"}
		}
		return nil, err
	}
	return d, nil
}

// MoveFiles moves the new files into the worktree and writes the new index beside the old one. The error is a
// *LocalChangesError if a file has changed since it was inspected. After any error the caller must call Undo.
func (tx *Transaction) MoveFiles(ctx context.Context) (err error) {
	if err := tx.beginStep(2, "files"); err != nil {
		return err
	}
	defer func() { tx.endStep(err) }()
	if tx.checkout == nil {
		return nil
	}
	if err := tx.staging.writePlan(); err != nil {
		return err
	}
	if err := tx.staging.moveFiles(ctx, tx.injectFault); err != nil {
		return err
	}
	if err := tx.injectFault("moved"); err != nil {
		return err
	}
	index, err := tx.composeIndex()
	if err != nil {
		return err
	}
	if err := index.WriteSynced(tx.draft.File); err != nil {
		return err
	}
	return tx.staging.checkMovedOut(ctx)
}

// composeIndex returns the new index: the old one with the changed paths replaced, and stat data of the moved files.
func (tx *Transaction) composeIndex() (*index.Edited, error) {
	w, err := openDirWalker(tx.spec.Worktree)
	if err != nil {
		return nil, err
	}
	defer w.close()
	seals := map[string]*fileIdentity{}
	for _, m := range tx.staging.plan.Moves {
		seals[string(m.Path)] = m.New
	}
	var changes []index.EntryChange
	for _, t := range tx.checkout.changes {
		c := index.EntryChange{Name: t.Path}
		if t.newKind != kindAbsent {
			mode, _ := strconv.ParseUint(t.NewMode, 8, 32)
			c.Mode, c.OID, c.Stat = uint32(mode), object.MustHex(t.NewOID), index.StatWithMode(uint32(mode))
		}
		if t.newKind == kindFile {
			c.SkipWorktree = tx.staging.entries[t.Path].SkipWorktree
		}
		if t.newKind == kindSubmodule {
			c.SkipWorktree = t.indexEntry.SkipWorktree
		}
		if is := seals[t.Path]; is != nil {
			var st unix.Stat_t
			fd, err := w.open(path.Dir(t.Path))
			if err == nil {
				err = unix.Fstatat(fd, path.Base(t.Path), &st, unix.AT_SYMLINK_NOFOLLOW)
			}
			if err == nil && fileIdentityOf(&st) == *is { // else another process has written to it: without stat data git re-reads it
				c.Stat = index.EncodeStat(&st, c.Mode)
			}
		}
		changes = append(changes, c)
	}
	sort.Slice(changes, func(i, j int) bool { return index.CompareChanges(changes[i], changes[j]) < 0 })
	return tx.checkout.index.WithChanges(changes), nil
}

// Publish renames the new index into place, which also releases the index lock. It removes the staging directory in the
// background; WaitCleanup waits for that.
func (tx *Transaction) Publish(ctx context.Context) error {
	if err := tx.beginStep(4, "publish"); err != nil {
		return err
	}
	if tx.checkout == nil {
		tx.finished = true
		return tx.waitDurable()
	}
	late := tx.waitDurable() // first: a Recover that found the new index and the old refs would undo half of the update
	if err := tx.draft.Publish(); err != nil {
		return errors.Join(late, err)
	}
	tx.finished = true
	tx.waitCleanedUp = proc.Async(func() (struct{}, error) {
		err := errors.Join(durable.SyncDir(tx.spec.GitDir), tx.draft.File.Close())
		if err == nil {
			err = tx.staging.remove()
		}
		return struct{}{}, err
	})
	return late
}

// waitDurable waits until the moved refs are durable, and returns all errors since they moved.
func (tx *Transaction) waitDurable() error {
	_, err := tx.waitRefsSynced()
	return errors.Join(tx.lateErr, err)
}

// WaitCleanup waits until the staging directory is removed.
func (tx *Transaction) WaitCleanup() error {
	if tx.waitCleanedUp == nil {
		return nil
	}
	_, err := tx.waitCleanedUp()
	tx.waitCleanedUp = nil
	return err
}
