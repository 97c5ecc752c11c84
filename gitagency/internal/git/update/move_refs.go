package update

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/repair"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Prepare locks the refs and checks their old values. Until Commit no other process can move them. The error is a
// *MovedRefError if one has.
func (tx *Transaction) Prepare(ctx context.Context) (err error) {
	if err := tx.beginStep(1, "prepare"); err != nil {
		return err
	}
	defer func() { tx.endStep(err) }()
	for _, m := range tx.spec.OtherRefs {
		if err := repair.RemoveAbandonedLock(ctx, tx.repo, tx.repo.RefPath(m.Ref)+index.LockSuffix); err != nil {
			return err
		}
	}
	err = tx.lockRefs(ctx)
	if by := tx.spec.merger; err != nil && by != nil && by.HasLostObjects() { // a gc has deleted new objects
		if err := by.RewritePersisted(ctx); err != nil {
			return err
		}
		tx.StartUpdateRef(ctx)
		err = tx.lockRefs(ctx)
	}
	if err != nil {
		for _, m := range tx.spec.refMoves() {
			now, lookErr := tx.repo.Tip(ctx, m.Ref)
			if lookErr != nil {
				return errors.Join(err, lookErr)
			}
			if !git.RefIsAt(now, m.Old) {
				return errors.Join(&MovedRefError{Ref: m.Ref, Want: m.Old, Have: now}, tx.closeUpdateRef())
			}
		}
		return tx.withRefLock(err)
	}
	if err := tx.recheckCheckout(ctx); err != nil {
		return errors.Join(err, tx.closeUpdateRef())
	}
	return nil
}

// refLockTimeout limits how long git may take to lock the refs. It is longer than git itself waits for ref locks.
const refLockTimeout = 30 * time.Second

// lockRefs sends the ref moves to git update-ref and lets it lock the refs. It kills a git that does not answer in time or
// when ctx ends; such a git has moved nothing.
func (tx *Transaction) lockRefs(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, refLockTimeout, errors.New("git update-ref did not report in time that the refs are locked"))
	defer cancel()
	defer context.AfterFunc(ctx, func() { tx.killUpdateRef(context.Cause(ctx)) })()
	if err := tx.awaitUpdateRef(); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("start\x00")
	for _, m := range tx.spec.refMoves() {
		fmt.Fprintf(&b, "option no-deref\x00update %s\x00%s\x00%s\x00", m.Ref, m.New, m.Old)
	}
	b.WriteString("prepare\x00")
	err := tx.sendToUpdateRef(b.String(), 2)
	if err != nil && context.Cause(ctx) != nil {
		err = errors.Join(err, tx.removeOwnRefLocks(context.WithoutCancel(ctx)))
	}
	return err
}

// removeOwnRefLocks removes the lock files that a git update-ref killed by lockRefs has left: it removes them itself unless
// the signal comes between the creation of a file and its registration for removal.
func (tx *Transaction) removeOwnRefLocks(ctx context.Context) (err error) {
	for path := range tx.spec.refLocks(tx.repo) {
		err = errors.Join(err, repair.RemoveAbandonedLock(ctx, tx.repo, path))
	}
	return err
}

// withRefLock returns the error of a git that was to lock the refs as a *git.LockedError if one of them is locked.
func (tx *Transaction) withRefLock(err error) error {
	for path := range tx.spec.refLocks(tx.repo) {
		if _, statErr := os.Lstat(path); statErr == nil {
			return &git.LockedError{Path: path, Err: err}
		}
	}
	return tx.repo.WithPackedRefsLock(err)
}

// StartUpdateRef starts git update-ref in the background, so that Prepare does not wait for its start.
func (tx *Transaction) StartUpdateRef(ctx context.Context) {
	if tx.startingUpdateRef != nil || tx.updateRef != nil || tx.finished {
		return
	}
	// Run in the worktree's git directory, as its HEAD has a reflog too. Ignore replace refs: they must not affect the update,
	// and their files could be pipes.
	p := git.RunOptions{GitDir: tx.spec.GitDir, Config: git.FsyncArgs, Env: []string{"GIT_NO_REPLACE_OBJECTS=1"}}
	args := []string{"update-ref", "--create-reflog", "-z", "--stdin"}
	if tx.spec.Reason != "" {
		args = append(args, "-m", tx.spec.Reason)
	}
	// Cancelling ctx must not kill git half-way through the refs: it is killed only before it is told to commit, else it ends
	// when we close its stdin.
	ctx, tx.killUpdateRef = context.WithCancelCause(context.WithoutCancel(ctx))
	tx.startingUpdateRef = proc.Async(func() (*proc.Coprocess, error) {
		talk, err := tx.repo.StartInteractiveInheriting(ctx, p, tx.repo.Inherit, args...)
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause // killed before it had started
		}
		return talk, err
	})
}

// awaitUpdateRef waits until git update-ref has started, if it is starting.
func (tx *Transaction) awaitUpdateRef() (err error) {
	if tx.startingUpdateRef != nil {
		tx.updateRef, err = tx.startingUpdateRef()
		tx.startingUpdateRef = nil
	}
	return err
}

// sendToUpdateRef sends commands to git update-ref and waits for a number of reply lines. It closes a git that fails.
func (tx *Transaction) sendToUpdateRef(words string, answers int) error {
	err := tx.updateRef.WriteString(words)
	for range answers {
		if err == nil {
			_, err = tx.updateRef.Stdout.ReadString('\n')
		}
	}
	if err == nil {
		return nil
	}
	res, closeErr := tx.updateRef.Close()
	tx.updateRef = nil
	switch {
	case closeErr != nil:
		return fmt.Errorf("git update-ref: %w", closeErr)
	case res.ExitCode != 0:
		return &git.Error{Args: []string{"update-ref"}, ExitCode: res.ExitCode, Stderr: string(res.Stderr)}
	}
	return fmt.Errorf("git update-ref: %w", err)
}

// closeUpdateRef ends git update-ref, which aborts a ref transaction that is not committed.
func (tx *Transaction) closeUpdateRef() error {
	if err := tx.awaitUpdateRef(); err != nil || tx.updateRef == nil {
		return nil // a git that did not start holds no locks
	}
	_, err := tx.updateRef.Close()
	tx.updateRef = nil
	return err
}

// syncRefs makes the moved refs durable.
func (tx *Transaction) syncRefs() (err error) {
	synced := map[string]bool{}
	for _, m := range tx.spec.refMoves() {
		if dir := path.Dir(m.Ref); !synced[dir] {
			synced[dir] = true
			err = errors.Join(err, tx.repo.SyncRef(m.Ref))
		}
	}
	return err
}

// Commit moves the refs. If it fails, the refs have not moved, or their state is unknown: then Undo reverts nothing and
// leaves that to Recover.
func (tx *Transaction) Commit(ctx context.Context) (err error) {
	if err := tx.beginStep(3, "commit"); err != nil {
		return err
	}
	defer func() { tx.endStep(err) }()
	if err := tx.keepNewObjects(ctx); err != nil {
		return err
	}
	tx.commitSent = true
	var left error
	if err := tx.sendToUpdateRef("commit\x00", 1); err != nil { // git may have been killed after it had moved the refs
		ctx, m := context.WithoutCancel(ctx), tx.spec.decisiveMove()
		now, lookErr := tx.repo.Tip(ctx, m.Ref)
		tx.outcomeUnknown = lookErr != nil
		if lookErr != nil || !git.RefIsAt(now, m.New) {
			return errors.Join(err, lookErr)
		}
		left = deleteRemainingRefs(ctx, tx.repo, tx.spec)
	}
	tx.committed = true
	// From here on the update cannot be undone: Publish returns the errors that follow.
	tx.lateErr = tx.closeUpdateRef()
	if context.Cause(ctx) != nil {
		tx.lateErr = nil // git was killed because ctx ended, after it had moved the refs
	}
	tx.lateErr = errors.Join(tx.lateErr, left)
	tx.waitRefsSynced = proc.Async(func() (struct{}, error) { return struct{}{}, tx.syncRefs() })
	var failed error
	tx.staleCheckout, failed = tx.updateLateCheckout(context.WithoutCancel(ctx))
	tx.lateErr = errors.Join(tx.lateErr, failed, tx.restoreLostObjects(context.WithoutCancel(ctx)))
	if tx.keptInPack {
		tx.lateErr = errors.Join(tx.lateErr, removeKeepFiles(tx.repo, tx.spec))
	}
	return nil
}

// refMoves returns all refs that move, the branch last.
func (u Update) refMoves() []RefMove {
	return append(u.OtherRefs[:len(u.OtherRefs):len(u.OtherRefs)], RefMove{Ref: u.Branch, Old: u.Old, New: u.New})
}

// decisiveMove returns the ref move that shows whether git committed the transaction. Git moves refs in order, and deletes
// refs after all others have moved: if the last ref to move has moved, only deletions can be missing.
func (u Update) decisiveMove() RefMove {
	moves := u.refMoves()
	for _, goes := range []bool{false, true} {
		for _, m := range slices.Backward(moves) {
			if m.Old != m.New && git.IsZeroOID(m.New) == goes {
				return m
			}
		}
	}
	return moves[len(moves)-1]
}

// deleteRemainingRefs deletes the refs that the update deletes and that a killed git has left at their old values.
func deleteRemainingRefs(ctx context.Context, r *git.Repo, u Update) (err error) {
	for _, m := range u.OtherRefs {
		if !git.IsZeroOID(m.New) || git.IsZeroOID(m.Old) {
			continue
		}
		now, lookErr := r.Tip(ctx, m.Ref)
		if lookErr == nil && now == m.Old {
			lookErr = r.DeleteRef(ctx, m.Ref, m.Old)
		}
		err = errors.Join(err, lookErr)
	}
	return err
}
