package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/handoff"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/upload"
)

// Snapshot takes a snapshot of the sandbox and returns its commit. If nothing has changed since the last snapshot, it
// returns that one.
func (s *Sandbox) Snapshot(ctx context.Context) (string, error) {
	snapshot, err := s.TakeSnapshot(ctx, snapshots.TakeRequest{})
	return snapshot.ID, err
}

// TakeSnapshot is Snapshot with options and a detailed result. The snapshot holds everything in the sandbox that is
// not ignored: tracked and untracked files, the index, and all commits reachable from HEAD or the branch. Untracked
// files that look like credentials, and nested repositories, which a commit cannot hold, are left out and listed.
// TakeSnapshot changes neither files, index, HEAD nor branch, and commands may run meanwhile: the snapshot is a
// consistent state of the sandbox, or the error is an *StillChangingError.
func (s *Sandbox) TakeSnapshot(ctx context.Context, req snapshots.TakeRequest) (_ snapshots.Snapshot, err error) {
	if err := req.Check(); err != nil {
		return snapshots.Snapshot{}, err
	}
	if err := s.importPending(ctx); err != nil {
		return snapshots.Snapshot{}, err
	}
	// The repository lock comes first: a discard holds it while it waits for the users of the sandbox to leave.
	repo, unlock, err := s.Repo.LockAndRecover(ctx)
	if err != nil {
		return snapshots.Snapshot{}, err
	}
	defer unlock()
	h, err := s.OpenLocked(ctx, repo)
	if err != nil {
		return snapshots.Snapshot{}, err
	}
	defer func() {
		if closeErr := h.Close(); closeErr != nil {
			s.Repo.Warn("%s: %v", s.Tree, closeErr)
		}
	}()
	ctx, cancel, err := s.Repo.Settings.WithOperationTimeout(ctx, "snapshot")
	if err != nil {
		return snapshots.Snapshot{}, err
	}
	defer cancel()
	resume, err := s.PauseUploads(ctx, h)
	if err != nil {
		return snapshots.Snapshot{}, err
	}
	defer resume()
	snapshot, err := s.takeAndRecord(ctx, repo, h.Base, req)
	if err != nil {
		return snapshots.Snapshot{}, &fault.InvocationError{Operation: "snapshot of", ID: s.ID, Err: err}
	}
	return snapshot, nil
}

// PauseUploads rolls back killed uploads and blocks new ones until resume is called, because a half-done upload is
// not a state of the sandbox.
//
// The caller must hold the repository lock: a discard holds it while it waits for uploads, so the opposite order
// could deadlock. The wait is at most 5 seconds, whatever the lock timeout is: an upload that hangs must not block the
// whole repository.
func (s *Sandbox) PauseUploads(ctx context.Context, h *Handle) (resume func(), err error) {
	const maxWait = 5 * time.Second
	timeout, err := s.Repo.Settings.LockTimeout()
	if err != nil {
		return nil, err
	}
	if timeout < 0 || timeout > maxWait {
		timeout = maxWait
	}
	if err := s.recoverUploadsInOverlay(ctx, h, timeout); err != nil {
		return nil, err
	}
	release, err := upload.Quiesce(ctx, s.UploadTarget(h.Tree), timeout)
	resume = func() {
		if err := release(); err != nil {
			s.Repo.Warn("%s: %v", s.Tree, err)
		}
	}
	switch {
	case fault.Is[*upload.IncompleteUndoError](err):
		s.Repo.Warn("sandbox %s: %v", s.ID, err)
	case fault.Is[*fault.LockTimeoutError](err):
		resume()
		return nil, &fault.BusyError{ID: s.ID, Waited: timeout, Holders: proc.FileUsers(s.Repo.Store.PutLockDir(s.Repo.ID, s.ID))}
	case err != nil:
		resume()
		return nil, err
	}
	return resume, nil
}

// takeAndRecord takes a snapshot and appends it to the history of the invocation.
func (s *Sandbox) takeAndRecord(ctx context.Context, repo *git.Repo, base string, req snapshots.TakeRequest) (snapshots.Snapshot, error) {
	snapshot, err := s.series(base).Take(ctx, repo, req)
	err = s.Repo.SaveFilesRefusal(s.ID, err, true)
	if err == nil && snapshot.Created {
		s.Repo.AppendEvent(s.ID, snapshotEvent{s.Repo.EventTime(), "snapshot", snapshot.ID, snapshot.Ref})
	}
	return snapshot, err
}

// series returns the snapshot series of the sandbox.
func (s *Sandbox) series(base string) snapshots.Series {
	return snapshots.Series{Repo: s.Repo, ID: s.ID, TreeName: "sandbox " + s.ID, Subject: func(message string) git.WorktreeSpec { return s.SnapshotSubject(base, message) }}
}

// SnapshotSubject describes the sandbox and the commit message for a snapshot.
func (s *Sandbox) SnapshotSubject(base, message string) git.WorktreeSpec {
	return git.WorktreeSpec{
		Name: s.ID, Dir: s.Tree, Branch: core.SandboxRef(s.ID), Base: base, UpperDir: handoff.UpperDir(s.Repo, s.ID), IsClone: s.Repo.IsClone(s.ID),
		Message: fmt.Sprintf("%s\n\nAgency-Invocation: %s\nAgency-Base: %s\nAgency-Version: %s", message, s.ID, base, cmp.Or(s.Repo.Opts.Version, "unknown")),
	}
}

type snapshotEvent struct {
	Time     time.Time `json:"time"`
	Event    string    `json:"event"`
	Snapshot string    `json:"snapshot"`
	Ref      string    `json:"ref"`
}
