package gitagency

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// hasRollbackNote reports whether a rollback or sync of the sandbox is running or was interrupted.
func (s *Sandbox) halfWay() bool {
	_, there := store.Taken(s.repo.store.RollbackPath(s.repo.ID, s.ID))
	return there
}

// finishRollback finishes an interrupted rollback before the sandbox is used, and waits for a running one. repo is
// the repository with its lock held by the caller, or nil.
func (s *Sandbox) finishRollback(ctx context.Context, repo *git.Repo) error {
	if !s.halfWay() {
		return nil
	}
	if repo == nil {
		held, unlock, err := s.repo.lock(ctx)
		if err != nil {
			return err
		}
		defer unlock()
		repo = held
	}
	if !s.halfWay() {
		return nil
	}
	h, leave, err := s.openAlone(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return s.finish(ctx, repo, h)
}

// resumeRollback continues an interrupted rollback or sync, if there is one. The tree may have been changed since, so
// its current state is snapshotted too. Nothing can have run behind the walls since: it would have finished the
// rollback first.
func (s *Sandbox) finish(ctx context.Context, repo *git.Repo, h *site) error {
	note, err := s.repo.store.Rollback(s.repo.ID, s.ID)
	if err != nil {
		return &LostRollbackError{ID: s.ID, Err: err}
	}
	if note == nil {
		return nil
	}
	to, err := s.repo.snapshotNamed(ctx, repo, note.Snapshot)
	if is[*NotFoundError](err) {
		return &LostRollbackError{ID: s.ID, Err: fmt.Errorf("there is no snapshot %s any more", note.Snapshot)}
	}
	if err != nil {
		return err
	}
	what := "rollback to " + to.name()
	if note.Verb == syncVerb {
		what = "sync"
		err = s.goOn(ctx, repo, h, to, note.Synced)
	} else {
		_, err = s.goBack(ctx, repo, h, to, true)
	}
	switch {
	case err == nil:
		s.repo.warn("sandbox %s: a %s was interrupted; it is finished now", s.ID, what)
	case !is[*HalfWayError](err):
		err = &HalfWayError{ID: s.ID, To: to.name(), Left: strings.TrimPrefix(note.LeftRef, snapshotRoot), Err: err}
	}
	return err
}

// rollbackOrigin returns the state before the first of a series of interrupted rollbacks; the zero state when there
// was none or its commit is gone.
func (s *Sandbox) began(ctx context.Context, repo *git.Repo, resuming bool) (git.State, error) {
	if !resuming {
		return git.State{}, nil
	}
	note, err := s.repo.store.Rollback(s.repo.ID, s.ID)
	if err != nil || note == nil {
		return git.State{}, nil // the note is missing or unreadable
	}
	commit := cmp.Or(note.Began, note.Left)
	found, err := repo.Lookup(ctx, commit+"^{tree}")
	if err != nil || found[0].Missing() {
		return git.State{}, err
	}
	return repo.ReadState(ctx, commit)
}

// finishRollbackForDiscard tries to finish an interrupted rollback in a sandbox that is about to be removed. Errors
// are only warnings: a discard keeps whatever state the sandbox is in.
func (s *Sandbox) finishForGood(ctx context.Context, repo *git.Repo, v vacancy) {
	if !s.halfWay() {
		return
	}
	err := func() error {
		if v.inside == nil || !store.IsDir(s.tree) {
			return nil
		}
		h, err := s.look(v.inside)
		if err != nil {
			return err
		}
		defer h.Close()
		return s.finish(ctx, repo, h)
	}()
	if err != nil {
		s.repo.warn("sandbox %s: %v", s.ID, err)
	}
	if err := s.repo.store.RemoveRollback(s.repo.ID, s.ID); err != nil {
		s.repo.warn("sandbox %s: %v", s.ID, err)
	}
}

// findInterruptedRollback reports a rollback or sync that was killed.
func (x *examination) rollbacks(s subject) {
	sandbox := x.sandboxOf(s.id)
	if !sandbox.halfWay() || x.unsettled {
		return
	}
	f := Finding{
		Code: "interrupted-rollback", ID: s.id, Path: x.store.RollbackPath(x.ID, s.id), AtRisk: true,
		What: "it was going to the state of a snapshot when somebody was killed; the next command that works in it finishes that",
	}
	note, err := x.store.Rollback(x.ID, s.id)
	if err != nil {
		f.What = err.Error()
	} else if note == nil {
		return
	} else if note.Verb == syncVerb {
		f.What = "it was being synced when somebody was killed; the next command that works in it finishes that"
	}
	x.found(f, func(ctx context.Context) error {
		err := sandbox.finishRollback(ctx, x.repo)
		if is[*LostRollbackError](err) {
			x.warn("%v; the sandbox stays as it is, and what is in it can be snapshotted", err)
			return x.store.RemoveRollback(x.ID, s.id)
		}
		return err
	})
}
