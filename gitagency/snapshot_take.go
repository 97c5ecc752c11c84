package gitagency

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/upload"
)

// SnapshotRequest holds the options of a snapshot. The zero value is the default.
type SnapshotRequest struct {
	Message        string // commit message
	IncludeIgnored bool   // include ignored files
	IncludeSecrets bool   // include untracked files that look like credentials
}

// Snapshot takes a snapshot of the sandbox and returns its commit. If nothing has changed since the last snapshot, it
// returns that one.
func (s *Sandbox) Snapshot(ctx context.Context) (string, error) {
	snapshot, err := s.TakeSnapshot(ctx, SnapshotRequest{})
	return snapshot.ID, err
}

// TakeSnapshot is Snapshot with options and a detailed result. The snapshot holds everything in the sandbox that is
// not ignored: tracked and untracked files, the index, and all commits reachable from HEAD or the branch. Untracked
// files that look like credentials, and nested repositories, which a commit cannot hold, are left out and listed.
// TakeSnapshot changes neither files, index, HEAD nor branch, and commands may run meanwhile: the snapshot is a
// consistent state of the sandbox, or the error is an *StillChangingError.
func (s *Sandbox) TakeSnapshot(ctx context.Context, req SnapshotRequest) (_ Snapshot, err error) {
	if err := req.check(); err != nil {
		return Snapshot{}, err
	}
	if err := s.importPending(ctx); err != nil {
		return Snapshot{}, err
	}
	// The repository lock comes first: a discard holds it while it waits for the users of the sandbox to leave.
	repo, unlock, err := s.repo.lockAndRecover(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	defer unlock()
	h, err := s.openLocked(ctx, repo)
	if err != nil {
		return Snapshot{}, err
	}
	defer func() {
		if closeErr := h.close(); closeErr != nil {
			s.repo.warn("%s: %v", s.tree, closeErr)
		}
	}()
	ctx, cancel, err := s.repo.withOperationTimeout(ctx, "snapshot")
	if err != nil {
		return Snapshot{}, err
	}
	defer cancel()
	resume, err := s.pauseUploads(ctx, h)
	if err != nil {
		return Snapshot{}, err
	}
	defer resume()
	snapshot, err := s.takeAndRecord(ctx, repo, h.base, req)
	if err != nil {
		return Snapshot{}, fmt.Errorf("snapshot of %s: %w", s.ID, err)
	}
	return snapshot, nil
}

// pauseUploads rolls back killed uploads and blocks new ones until resume is called, because a half-done upload is
// not a state of the sandbox.
//
// The caller must hold the repository lock: a discard holds it while it waits for uploads, so the opposite order
// could deadlock. The wait is at most 5 seconds, whatever the lock timeout is: a process in the sandbox can block
// uploads for any time and must not block the whole repository.
func (s *Sandbox) pauseUploads(ctx context.Context, h *handle) (resume func(), err error) {
	const maxWait = 5 * time.Second
	timeout, err := s.repo.lockTimeout()
	if err != nil {
		return nil, err
	}
	if timeout < 0 || timeout > maxWait {
		timeout = maxWait
	}
	release, err := upload.Quiesce(ctx, h.Tree, timeout)
	resume = func() {
		if err := release(); err != nil {
			s.repo.warn("%s: %v", s.tree, err)
		}
	}
	switch {
	case is[*upload.IncompleteUndoError](err):
		s.repo.warn("sandbox %s: %v", s.ID, err)
	case is[*LockTimeoutError](err):
		resume()
		return nil, &BusyError{ID: s.ID, Waited: timeout, Holders: proc.FileUsers(filepath.Join(s.tree, guard.AgencyDir))}
	case err != nil:
		resume()
		return nil, err
	}
	return resume, nil
}

func (req *SnapshotRequest) check() error {
	req.Message = strings.TrimSpace(req.Message)
	if !utf8.ValidString(req.Message) || strings.Contains(req.Message, "\x00") {
		return &InvalidError{What: "message", Value: req.Message, Want: "text in UTF-8"}
	}
	return nil
}

// takeAndRecord takes a snapshot and appends it to the history of the invocation.
func (s *Sandbox) takeAndRecord(ctx context.Context, repo *git.Repo, base string, req SnapshotRequest) (Snapshot, error) {
	snapshot, err := s.series(base).take(ctx, repo, req)
	if err == nil && snapshot.Created {
		s.repo.appendEvent(s.ID, snapshotEvent{s.repo.now(), "snapshot", snapshot.ID, snapshot.Ref})
	}
	return snapshot, err
}

// series returns the snapshot series of the sandbox.
func (s *Sandbox) series(base string) snapshotSeries {
	return snapshotSeries{repo: s.repo, id: s.ID, treeName: "sandbox " + s.ID, subject: func(message string) git.WorktreeSpec { return s.snapshotSubject(base, message) }}
}

// snapshotSubject describes the sandbox and the commit message for a snapshot.
func (s *Sandbox) snapshotSubject(base, message string) git.WorktreeSpec {
	return git.WorktreeSpec{
		Name: s.ID, Dir: s.tree, Branch: sandboxRef(s.ID), Base: base, UpperDir: s.upperDir(),
		Message: fmt.Sprintf("%s\n\nAgency-Invocation: %s\nAgency-Base: %s\nAgency-Version: %s", message, s.ID, base, cmp.Or(s.repo.opts.Version, "unknown")),
	}
}

type snapshotEvent struct {
	Time     time.Time `json:"time"`
	Event    string    `json:"event"`
	Snapshot string    `json:"snapshot"`
	Ref      string    `json:"ref"`
}
