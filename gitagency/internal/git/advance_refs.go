package git

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Prepare locks the refs and checks their old values. Until Commit no other process can move them. The error is a
// *MovedRefError if one has.
func (tx *Advancing) Prepare(ctx context.Context) (err error) {
	if err := tx.step(1, "prepare"); err != nil {
		return err
	}
	defer func() { tx.went(err) }()
	err = tx.lockRefs(ctx)
	if by := tx.a.by; err != nil && by != nil && by.lost() { // a gc has deleted new objects
		if err := by.haveAll(ctx); err != nil {
			return err
		}
		tx.Wake(ctx)
		err = tx.lockRefs(ctx)
	}
	if err != nil {
		for _, m := range tx.a.moves() {
			now, lookErr := tx.repo.Tip(ctx, m.Ref)
			if lookErr != nil {
				return errors.Join(err, lookErr)
			}
			if !isAt(now, m.Old) {
				return errors.Join(&MovedRefError{Ref: m.Ref, Want: m.Old, Have: now}, tx.hangUp())
			}
		}
		return err
	}
	if err := tx.sameSeat(ctx); err != nil {
		return errors.Join(err, tx.hangUp())
	}
	return nil
}

// refLockTimeout limits how long git may take to lock the refs. It is longer than git itself waits for ref locks.
const patienceWithRefs = 30 * time.Second

// lockRefs sends the ref moves to git update-ref and lets it lock the refs. It kills a git that does not answer in time or
// when ctx ends; such a git has moved nothing.
func (tx *Advancing) lockRefs(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patienceWithRefs, errors.New("git does not say whether the refs are locked"))
	defer cancel()
	defer context.AfterFunc(ctx, func() { tx.silence(context.Cause(ctx)) })()
	if err := tx.reach(); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("start\x00")
	for _, m := range tx.a.moves() {
		fmt.Fprintf(&b, "option no-deref\x00update %s\x00%s\x00%s\x00", m.Ref, m.New, m.Old)
	}
	b.WriteString("prepare\x00")
	return tx.say(b.String(), 2)
}

// StartUpdateRef starts git update-ref in the background, so that Prepare does not wait for its start.
func (tx *Advancing) Wake(ctx context.Context) {
	if tx.called != nil || tx.talk != nil || tx.finished {
		return
	}
	// Run in the worktree's git directory, as its HEAD has a reflog too. Ignore replace refs: they must not affect the update,
	// and their files could be pipes.
	p := place{gitDir: tx.a.GitDir, config: durably, env: []string{"GIT_NO_REPLACE_OBJECTS=1"}}
	args := []string{"update-ref", "--create-reflog", "-z", "--stdin"}
	if tx.a.Reason != "" {
		args = append(args, "-m", tx.a.Reason)
	}
	// Cancelling ctx must not kill git half-way through the refs: it is killed only before it is told to commit, else it ends
	// when we close its stdin.
	ctx, tx.silence = context.WithCancelCause(context.WithoutCancel(ctx))
	tx.called = proc.Meanwhile(func() (*proc.Conversation, error) { return tx.repo.converse(ctx, p, tx.repo.inherit, args...) })
}

// awaitUpdateRef waits until git update-ref has started, if it is starting.
func (tx *Advancing) reach() (err error) {
	if tx.called != nil {
		tx.talk, err = tx.called()
		tx.called = nil
	}
	return err
}

// sendToUpdateRef sends commands to git update-ref and waits for a number of reply lines. It closes a git that fails.
func (tx *Advancing) say(words string, answers int) error {
	err := tx.talk.Ask(words)
	for range answers {
		if err == nil {
			_, err = tx.talk.Answers.ReadString('\n')
		}
	}
	if err == nil {
		return nil
	}
	res, closeErr := tx.talk.Close()
	tx.talk = nil
	switch {
	case closeErr != nil:
		return fmt.Errorf("git update-ref: %w", closeErr)
	case res.ExitCode != 0:
		return &Error{Args: []string{"update-ref"}, ExitCode: res.ExitCode, Stderr: string(res.Stderr)}
	}
	return fmt.Errorf("git update-ref: %w", err)
}

// closeUpdateRef ends git update-ref, which aborts a ref transaction that is not committed.
func (tx *Advancing) hangUp() error {
	if err := tx.reach(); err != nil || tx.talk == nil {
		return nil // a git that did not start holds no locks
	}
	_, err := tx.talk.Close()
	tx.talk = nil
	return err
}

// syncRefs makes the moved refs durable.
func (tx *Advancing) syncRefs() (err error) {
	synced := map[string]bool{}
	for _, m := range tx.a.moves() {
		if dir := path.Dir(m.Ref); !synced[dir] {
			synced[dir] = true
			err = errors.Join(err, tx.repo.SyncRef(m.Ref))
		}
	}
	return err
}

// Commit moves the refs. If it fails, the refs have not moved, or their state is unknown: then Undo reverts nothing and
// leaves that to Recover.
func (tx *Advancing) Commit(ctx context.Context) (err error) {
	if err := tx.step(3, "commit"); err != nil {
		return err
	}
	defer func() { tx.went(err) }()
	if err := tx.hold(ctx); err != nil {
		return err
	}
	tx.tried = true
	var left error
	if err := tx.say("commit\x00", 1); err != nil { // git may have been killed after it had moved the refs
		ctx, m := context.WithoutCancel(ctx), tx.a.decisive()
		now, lookErr := tx.repo.Tip(ctx, m.Ref)
		tx.unknown = lookErr != nil
		if lookErr != nil || !isAt(now, m.New) {
			return errors.Join(err, lookErr)
		}
		left = tx.repo.deleteRest(ctx, tx.a)
	}
	tx.done = true
	// From here on the update cannot be undone: Publish returns the errors that follow.
	tx.late = tx.hangUp()
	if context.Cause(ctx) != nil {
		tx.late = nil // git was killed because ctx ended, after it had moved the refs
	}
	tx.late = errors.Join(tx.late, left)
	tx.syncing = proc.Meanwhile(func() (struct{}, error) { return struct{}{}, tx.syncRefs() })
	var failed error
	tx.behind, failed = tx.takeAlong(context.WithoutCancel(ctx))
	tx.late = errors.Join(tx.late, failed, tx.stillThere(context.WithoutCancel(ctx)))
	if tx.held {
		tx.late = errors.Join(tx.late, tx.repo.letGo(tx.a))
	}
	return nil
}

// refMoves returns all refs that move, the branch last.
func (u Advance) moves() []RefMove {
	return append(u.Also[:len(u.Also):len(u.Also)], RefMove{Ref: u.Branch, Old: u.Old, New: u.New})
}

// decisiveMove returns the ref move that shows whether git committed the transaction. Git moves refs in order, and deletes
// refs after all others have moved: if the last ref to move has moved, only deletions can be missing.
func (u Advance) decisive() RefMove {
	moves := u.moves()
	for _, goes := range []bool{false, true} {
		for _, m := range slices.Backward(moves) {
			if m.Old != m.New && isNowhere(m.New) == goes {
				return m
			}
		}
	}
	return moves[len(moves)-1]
}

// deleteRemainingRefs deletes the refs that the update deletes and that a killed git has left at their old values.
func (r *Repo) deleteRest(ctx context.Context, u Advance) (err error) {
	for _, m := range u.Also {
		if !isNowhere(m.New) || isNowhere(m.Old) {
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

// isZeroOID reports whether an object id is empty or all zeros: no object.
func isNowhere(oid string) bool { return strings.Trim(oid, "0") == "" }

// refIsAt reports whether a ref's value (empty: the ref does not exist) is oid (zeros: the ref must not exist).
func isAt(now, oid string) bool { return now == oid || now == "" && isNowhere(oid) }
