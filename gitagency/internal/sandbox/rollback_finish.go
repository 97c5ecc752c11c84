package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// HasRollbackJournal reports whether a rollback or sync of the sandbox is running or was interrupted.
func (s *Sandbox) HasRollbackJournal() bool {
	_, there := store.FirstExisting(s.Repo.Store.RollbackJournalPath(s.Repo.ID, s.ID))
	return there
}

// FinishRollback finishes an interrupted rollback before the sandbox is used, and waits for a running one. repo is
// the repository with its lock held by the caller, or nil.
func (s *Sandbox) FinishRollback(ctx context.Context, repo *git.Repo) error {
	if !s.HasRollbackJournal() {
		return nil
	}
	if repo == nil {
		held, unlock, err := s.Repo.LockAndRecover(ctx)
		if err != nil {
			return err
		}
		defer unlock()
		repo = held
	}
	if !s.HasRollbackJournal() {
		return nil
	}
	h, leave, err := s.OpenExclusive(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return s.ResumeRollback(ctx, repo, h)
}

// ResumeRollback continues an interrupted rollback or sync, if there is one. The tree may have been changed since, so
// its current state is snapshotted too. Nothing can have run behind the walls since: it would have finished the
// rollback first.
func (s *Sandbox) ResumeRollback(ctx context.Context, repo *git.Repo, h *Handle) error {
	note, err := s.Repo.Store.ReadRollbackJournal(s.Repo.ID, s.ID)
	if err != nil {
		return &fault.LostRollbackError{ID: s.ID, Err: err}
	}
	if note == nil {
		return nil
	}
	to, err := snapshots.Find(ctx, s.Repo, repo, note.SnapshotCommit)
	if fault.Is[*fault.NotFoundError](err) {
		return &fault.LostRollbackError{ID: s.ID, Err: fmt.Errorf("snapshot %s no longer exists", note.SnapshotCommit)}
	}
	if err != nil {
		return err
	}
	what := "rollback to " + to.Name()
	if note.Verb == SyncVerb {
		what = "sync"
		err = s.resumeSync(ctx, repo, h, to, note.SyncedCommit)
	} else {
		_, err = s.rollBackTo(ctx, repo, h, to, true)
	}
	switch {
	case err == nil:
		s.Repo.Warn("sandbox %s: a %s was interrupted; it is finished now", s.ID, what)
	case !fault.Is[*fault.UnfinishedTransitionError](err):
		err = &fault.UnfinishedTransitionError{ID: s.ID, To: to.Name(), LeftSnapshot: strings.TrimPrefix(note.LeftRef, core.AllSnapshotsPrefix), Err: err}
	}
	return err
}

// rollbackOrigin returns the state before the first of a series of interrupted rollbacks; the zero state when there
// was none or its commit is gone.
func (s *Sandbox) rollbackOrigin(ctx context.Context, repo *git.Repo, resuming bool) (snapshot.State, error) {
	if !resuming {
		return snapshot.State{}, nil
	}
	note, err := s.Repo.Store.ReadRollbackJournal(s.Repo.ID, s.ID)
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

// FinishRollbackForDiscard tries to finish an interrupted rollback in a sandbox that is about to be removed. Errors
// are only warnings: a discard keeps whatever state the sandbox is in.
func (s *Sandbox) FinishRollbackForDiscard(ctx context.Context, repo *git.Repo, v ExclusiveLock) {
	if !s.HasRollbackJournal() {
		return
	}
	err := func() error {
		if v.InvocationLock == nil || !store.IsDir(s.Tree) {
			return nil
		}
		h, err := s.newHandle(v.InvocationLock)
		if err != nil {
			return err
		}
		defer h.Tree.Close()
		return s.ResumeRollback(ctx, repo, h)
	}()
	if err != nil {
		s.Repo.Warn("sandbox %s: %v", s.ID, err)
	}
	if err := s.Repo.Store.RemoveRollbackJournal(s.Repo.ID, s.ID); err != nil {
		s.Repo.Warn("sandbox %s: %v", s.ID, err)
	}
}
