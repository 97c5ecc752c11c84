package gitagency

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// hasRollbackJournal reports whether a rollback or sync of the sandbox is running or was interrupted.
func (s *Sandbox) hasRollbackJournal() bool {
	_, there := store.FirstExisting(s.repo.store.RollbackJournalPath(s.repo.ID, s.ID))
	return there
}

// finishRollback finishes an interrupted rollback before the sandbox is used, and waits for a running one. repo is
// the repository with its lock held by the caller, or nil.
func (s *Sandbox) finishRollback(ctx context.Context, repo *git.Repo) error {
	if !s.hasRollbackJournal() {
		return nil
	}
	if repo == nil {
		held, unlock, err := s.repo.lockAndRecover(ctx)
		if err != nil {
			return err
		}
		defer unlock()
		repo = held
	}
	if !s.hasRollbackJournal() {
		return nil
	}
	h, leave, err := s.openExclusive(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return s.resumeRollback(ctx, repo, h)
}

// resumeRollback continues an interrupted rollback or sync, if there is one. The tree may have been changed since, so
// its current state is snapshotted too. Nothing can have run behind the walls since: it would have finished the
// rollback first.
func (s *Sandbox) resumeRollback(ctx context.Context, repo *git.Repo, h *handle) error {
	note, err := s.repo.store.ReadRollbackJournal(s.repo.ID, s.ID)
	if err != nil {
		return &LostRollbackError{ID: s.ID, Err: err}
	}
	if note == nil {
		return nil
	}
	to, err := s.repo.findSnapshot(ctx, repo, note.SnapshotCommit)
	if is[*NotFoundError](err) {
		return &LostRollbackError{ID: s.ID, Err: fmt.Errorf("there is no snapshot %s any more", note.SnapshotCommit)}
	}
	if err != nil {
		return err
	}
	what := "rollback to " + to.name()
	if note.Verb == syncVerb {
		what = "sync"
		err = s.resumeSync(ctx, repo, h, to, note.SyncedCommit)
	} else {
		_, err = s.rollBackTo(ctx, repo, h, to, true)
	}
	switch {
	case err == nil:
		s.repo.warn("sandbox %s: a %s was interrupted; it is finished now", s.ID, what)
	case !is[*UnfinishedTransitionError](err):
		err = &UnfinishedTransitionError{ID: s.ID, To: to.name(), LeftSnapshot: strings.TrimPrefix(note.LeftRef, allSnapshotsPrefix), Err: err}
	}
	return err
}

// rollbackOrigin returns the state before the first of a series of interrupted rollbacks; the zero state when there
// was none or its commit is gone.
func (s *Sandbox) rollbackOrigin(ctx context.Context, repo *git.Repo, resuming bool) (snapshot.State, error) {
	if !resuming {
		return snapshot.State{}, nil
	}
	note, err := s.repo.store.ReadRollbackJournal(s.repo.ID, s.ID)
	if err != nil || note == nil {
		return snapshot.State{}, nil // the journal is missing or unreadable
	}
	commit := cmp.Or(note.FirstLeftCommit, note.LeftCommit)
	found, err := repo.Lookup(ctx, commit+"^{tree}")
	if err != nil || found[0].Missing() {
		return snapshot.State{}, err
	}
	return snapshot.ReadState(ctx, repo, commit)
}

// finishRollbackForDiscard tries to finish an interrupted rollback in a sandbox that is about to be removed. Errors
// are only warnings: a discard keeps whatever state the sandbox is in.
func (s *Sandbox) finishRollbackForDiscard(ctx context.Context, repo *git.Repo, v exclusiveLock) {
	if !s.hasRollbackJournal() {
		return
	}
	err := func() error {
		if v.invocationLock == nil || !store.IsDir(s.tree) {
			return nil
		}
		h, err := s.newHandle(v.invocationLock)
		if err != nil {
			return err
		}
		defer h.Close()
		return s.resumeRollback(ctx, repo, h)
	}()
	if err != nil {
		s.repo.warn("sandbox %s: %v", s.ID, err)
	}
	if err := s.repo.store.RemoveRollbackJournal(s.repo.ID, s.ID); err != nil {
		s.repo.warn("sandbox %s: %v", s.ID, err)
	}
}

// findInterruptedRollback reports a rollback or sync that was killed.
func (x *checkRun) findInterruptedRollback(s treeInfo) {
	sandbox := x.sandboxOf(s.id)
	if !sandbox.hasRollbackJournal() || x.changing {
		return
	}
	f := Finding{
		Code: "interrupted-rollback", ID: s.id, Path: x.store.RollbackJournalPath(x.ID, s.id), AtRisk: true,
		Problem: "it was going to the state of a snapshot when somebody was killed; the next command that works in it finishes that",
	}
	note, err := x.store.ReadRollbackJournal(x.ID, s.id)
	if err != nil {
		f.Problem = err.Error()
	} else if note == nil {
		return
	} else if note.Verb == syncVerb {
		f.Problem = "it was being synced when somebody was killed; the next command that works in it finishes that"
	}
	x.addFinding(f, func(ctx context.Context) error {
		err := sandbox.finishRollback(ctx, x.repo)
		if is[*LostRollbackError](err) {
			x.warn("%v; the sandbox stays as it is, and what is in it can be snapshotted", err)
			return x.store.RemoveRollbackJournal(x.ID, s.id)
		}
		return err
	})
}
