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

// Prepare locks the refs, and makes sure that they are where they have to be. Until Commit nobody else can move them. The
// error is a *MovedRefError where somebody has.
func (x *Advancing) Prepare(ctx context.Context) (err error) {
	if err := x.step(1, "prepare"); err != nil {
		return err
	}
	defer func() { x.went(err) }()
	err = x.lockRefs(ctx)
	if by := x.a.by; err != nil && by != nil && by.lost() { // somebody has taken away what the refs are to lead to
		if err := by.haveAll(ctx); err != nil {
			return err
		}
		x.Wake(ctx)
		err = x.lockRefs(ctx)
	}
	if err != nil {
		for _, m := range x.a.moves() {
			now, lookErr := x.repo.Tip(ctx, m.Ref)
			if lookErr != nil {
				return errors.Join(err, lookErr)
			}
			if !isAt(now, m.Old) {
				return errors.Join(&MovedRefError{Ref: m.Ref, Want: m.Old, Have: now}, x.hangUp())
			}
		}
		return err
	}
	if err := x.sameSeat(ctx); err != nil {
		return errors.Join(err, x.hangUp())
	}
	return nil
}

// patienceWithRefs is how long git may take to lock some refs: longer than it waits for who has them locked.
const patienceWithRefs = 30 * time.Second

// lockRefs tells git which refs are to move, from where and to where. A git that does not answer is killed, as when ctx ends:
// it has not moved anything.
func (x *Advancing) lockRefs(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patienceWithRefs, errors.New("git does not say whether the refs are locked"))
	defer cancel()
	defer context.AfterFunc(ctx, func() { x.silence(context.Cause(ctx)) })()
	if err := x.reach(); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("start\x00")
	for _, m := range x.a.moves() {
		fmt.Fprintf(&b, "option no-deref\x00update %s\x00%s\x00%s\x00", m.Ref, m.New, m.Old)
	}
	b.WriteString("prepare\x00")
	return x.say(b.String(), 2)
}

// Wake starts the git that will be told of the refs, so that nobody has to wait for it.
func (x *Advancing) Wake(ctx context.Context) {
	if x.called != nil || x.talk != nil || x.finished {
		return
	}
	// HEAD of that worktree has a log too. What replaces objects is none of its business, and could be a pipe.
	p := place{gitDir: x.a.GitDir, config: durably, env: []string{"GIT_NO_REPLACE_OBJECTS=1"}}
	args := []string{"update-ref", "--create-reflog", "-z", "--stdin"}
	if x.a.Reason != "" {
		args = append(args, "-m", x.a.Reason)
	}
	// Who is told to end must not kill it half-way through the refs: it ends when we hang up, or before it was told to move them.
	ctx, x.silence = context.WithCancelCause(context.WithoutCancel(ctx))
	x.called = proc.Meanwhile(func() (*proc.Conversation, error) { return x.repo.converse(ctx, p, x.repo.inherit, args...) })
}

// reach waits until that git has started, if it was called.
func (x *Advancing) reach() (err error) {
	if x.called != nil {
		x.talk, err = x.called()
		x.called = nil
	}
	return err
}

// say tells the git that holds the locks something, and waits for so many lines of answer.
func (x *Advancing) say(words string, answers int) error {
	err := x.talk.Ask(words)
	for range answers {
		if err == nil {
			_, err = x.talk.Answers.ReadString('\n')
		}
	}
	if err == nil {
		return nil
	}
	res, closeErr := x.talk.Close()
	x.talk = nil
	switch {
	case closeErr != nil:
		return fmt.Errorf("git update-ref: %w", closeErr)
	case res.ExitCode != 0:
		return &Error{Args: []string{"update-ref"}, ExitCode: res.ExitCode, Stderr: string(res.Stderr)}
	}
	return fmt.Errorf("git update-ref: %w", err)
}

// hangUp ends it: what was not committed is not done.
func (x *Advancing) hangUp() error {
	if err := x.reach(); err != nil || x.talk == nil {
		return nil // one that has not started holds nothing
	}
	_, err := x.talk.Close()
	x.talk = nil
	return err
}

// syncRefs makes it last that the refs have moved.
func (x *Advancing) syncRefs() (err error) {
	synced := map[string]bool{}
	for _, m := range x.a.moves() {
		if dir := path.Dir(m.Ref); !synced[dir] {
			synced[dir] = true
			err = errors.Join(err, x.repo.SyncRef(m.Ref))
		}
	}
	return err
}

// Commit moves the refs. If it fails they have not moved, or nobody can tell: then Undo leaves all of it to FinishAdvance.
func (x *Advancing) Commit(ctx context.Context) (err error) {
	if err := x.step(3, "commit"); err != nil {
		return err
	}
	defer func() { x.went(err) }()
	if err := x.hold(ctx); err != nil {
		return err
	}
	x.tried = true
	var left error
	if err := x.say("commit\x00", 1); err != nil { // it may have been killed when it was done
		ctx, m := context.WithoutCancel(ctx), x.a.decisive()
		now, lookErr := x.repo.Tip(ctx, m.Ref)
		x.unknown = lookErr != nil
		if lookErr != nil || !isAt(now, m.New) {
			return errors.Join(err, lookErr)
		}
		left = x.repo.deleteRest(ctx, x.a)
	}
	x.done = true
	// From here on there is no way back: what goes wrong now is for Publish to say.
	x.late = x.hangUp()
	if context.Cause(ctx) != nil {
		x.late = nil // it was told to end, and was done
	}
	x.late = errors.Join(x.late, left)
	x.syncing = proc.Meanwhile(func() (struct{}, error) { return struct{}{}, x.syncRefs() })
	var failed error
	x.behind, failed = x.takeAlong(context.WithoutCancel(ctx))
	x.late = errors.Join(x.late, failed, x.stillThere(context.WithoutCancel(ctx)))
	if x.held {
		x.late = errors.Join(x.late, x.repo.letGo(x.a))
	}
	return nil
}

// moves are all refs that move, the branch last.
func (a Advance) moves() []RefMove {
	return append(a.Also[:len(a.Also):len(a.Also)], RefMove{Ref: a.Branch, Old: a.Old, New: a.New})
}

// decisive is the move by which all of it is done. Git moves refs in their order, and deletes those that are to go when all
// the others have moved: where the last that moves has, nothing but deleting can be left.
func (a Advance) decisive() RefMove {
	moves := a.moves()
	for _, goes := range []bool{false, true} {
		for _, m := range slices.Backward(moves) {
			if m.Old != m.New && isNowhere(m.New) == goes {
				return m
			}
		}
	}
	return moves[len(moves)-1]
}

// deleteRest deletes the refs that are to go and are still where they were, as somebody who is killed leaves them.
func (r *Repo) deleteRest(ctx context.Context, a Advance) (err error) {
	for _, m := range a.Also {
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

// isNowhere reports whether a name of an object says that there is none.
func isNowhere(oid string) bool { return strings.Trim(oid, "0") == "" }

// isAt reports whether a ref that is somewhere, or not there, is where it is to be.
func isAt(now, oid string) bool { return now == oid || now == "" && isNowhere(oid) }
