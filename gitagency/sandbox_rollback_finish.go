package gitagency

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// halfWay reports whether a rollback of the sandbox is under way, or was interrupted.
func (s *Sandbox) halfWay() bool {
	_, there := store.Taken(s.repo.store.RollbackPath(s.repo.ID, s.ID))
	return there
}

// finishRollback finishes a rollback that was interrupted, before somebody works in the sandbox. One that is under way
// is waited for. repo has the repository lock, when the caller has it.
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
	place, leave, err := s.openAlone(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return s.finish(ctx, repo, place)
}

// finish goes on with a rollback that was interrupted, if there is one. Somebody may have worked in the sandbox since:
// the state that it is in is snapshotted too. Nobody was behind its walls: they would have finished it.
func (s *Sandbox) finish(ctx context.Context, repo *git.Repo, place *site) error {
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
		err = s.goOn(ctx, repo, place, to, note.Synced)
	} else {
		_, err = s.goBack(ctx, repo, place, to, true)
	}
	switch {
	case err == nil:
		s.repo.warn("sandbox %s: a %s was interrupted; it is finished now", s.ID, what)
	case !is[*HalfWayError](err):
		err = &HalfWayError{ID: s.ID, To: to.name(), Left: strings.TrimPrefix(note.LeftRef, snapshotRoot), Err: err}
	}
	return err
}

// began is the state from which a rollback that was interrupted came, the first of them where there were several; none
// where there was none, or that state is gone.
func (s *Sandbox) began(ctx context.Context, repo *git.Repo, again bool) (git.State, error) {
	if !again {
		return git.State{}, nil
	}
	note, err := s.repo.store.Rollback(s.repo.ID, s.ID)
	if err != nil || note == nil {
		return git.State{}, nil // what it said, nobody knows
	}
	commit := cmp.Or(note.Began, note.Left)
	found, err := repo.Lookup(ctx, commit+"^{tree}")
	if err != nil || found[0].Missing() {
		return git.State{}, err
	}
	return repo.ReadState(ctx, commit)
}

// finishForGood does what can be done of a rollback that was interrupted in a sandbox that is about to go. Whatever
// state it is in then is kept, so nothing of this keeps it from going.
func (s *Sandbox) finishForGood(ctx context.Context, repo *git.Repo, v vacancy) {
	if !s.halfWay() {
		return
	}
	err := func() error {
		if v.inside == nil || !store.IsDir(s.tree) {
			return nil
		}
		place, err := s.look(v.inside)
		if err != nil {
			return err
		}
		defer place.Close()
		return s.finish(ctx, repo, place)
	}()
	if err != nil {
		s.repo.warn("sandbox %s: %v", s.ID, err)
	}
	if err := s.repo.store.RemoveRollback(s.repo.ID, s.ID); err != nil {
		s.repo.warn("sandbox %s: %v", s.ID, err)
	}
}

// rollbacks looks for a rollback that was killed.
func (x *examination) rollbacks(s subject) {
	box := x.sandboxOf(s.id)
	if !box.halfWay() || x.unsettled {
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
		err := box.finishRollback(ctx, x.repo)
		if is[*LostRollbackError](err) {
			x.warn("%v; the sandbox stays as it is, and what is in it can be snapshotted", err)
			return x.store.RemoveRollback(x.ID, s.id)
		}
		return err
	})
}
