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

// SnapshotRequest says how to take a snapshot. The zero value is right for most.
type SnapshotRequest struct {
	Message string // of the commit
	Ignored bool   // what git ignores is taken too
	Secrets bool   // and so are untracked files that look like credentials
}

// Snapshot takes the state of the sandbox and returns the commit that holds it. When nothing has changed
// since the last one, it is that.
func (s *Sandbox) Snapshot(ctx context.Context) (string, error) {
	snapshot, err := s.TakeSnapshot(ctx, SnapshotRequest{})
	return snapshot.ID, err
}

// TakeSnapshot is Snapshot with more to say on both sides. What is in the sandbox and not ignored is in the
// snapshot: tracked and untracked files, what is staged, and every commit that HEAD or the branch leads to.
// What is left out all the same is listed: untracked files that look like credentials, and repositories inside of
// it, which no commit can hold. Nothing in the sandbox is touched, neither files nor index, HEAD or branch, and
// commands may run in it meanwhile: it is one state that the sandbox was in, or an *UnsettledError.
func (s *Sandbox) TakeSnapshot(ctx context.Context, req SnapshotRequest) (_ Snapshot, err error) {
	if err := req.check(); err != nil {
		return Snapshot{}, err
	}
	if err := s.bringOut(ctx); err != nil {
		return Snapshot{}, err
	}
	// The lock comes first: whoever ends a sandbox holds it while waiting for those who are in there to leave.
	repo, unlock, err := s.repo.lock(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	defer unlock()
	place, err := s.openHolding(ctx, repo)
	if err != nil {
		return Snapshot{}, err
	}
	defer func() {
		if closeErr := place.close(); closeErr != nil {
			s.repo.warn("%s: %v", s.tree, closeErr)
		}
	}()
	ctx, cancel, err := s.repo.bounded(ctx, "snapshot")
	if err != nil {
		return Snapshot{}, err
	}
	defer cancel()
	resume, err := s.quiesce(ctx, place)
	if err != nil {
		return Snapshot{}, err
	}
	defer resume()
	snapshot, err := s.take(ctx, repo, place.base, req)
	if err != nil {
		return Snapshot{}, fmt.Errorf("snapshot of %s: %w", s.ID, err)
	}
	return snapshot, nil
}

// quiesce takes back what killed puts left and holds off the others until resume: what is half put is no state.
//
// It is called with the repository locked, and never the other way round: whoever discards a sandbox has that lock
// while it waits for puts. So it waits only for a moment, however long one would wait for the repository: whoever
// is in the sandbox can keep puts off for as long as it likes, and shall not keep everybody else from the repository.
func (s *Sandbox) quiesce(ctx context.Context, place *site) (resume func(), err error) {
	const most = 5 * time.Second
	timeout, err := s.repo.lockTimeout()
	if err != nil {
		return nil, err
	}
	if timeout < 0 || timeout > most {
		timeout = most
	}
	release, err := upload.Quiesce(ctx, place.Tree, timeout)
	resume = func() {
		if err := release(); err != nil {
			s.repo.warn("%s: %v", s.tree, err)
		}
	}
	switch {
	case is[*upload.LeftError](err):
		s.repo.warn("sandbox %s: %v", s.ID, err)
	case is[*LockTimeoutError](err):
		resume()
		return nil, &BusyError{ID: s.ID, Waited: timeout, Holders: proc.Holders(filepath.Join(s.tree, guard.Dir))}
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

// take takes a snapshot and writes that down.
func (s *Sandbox) take(ctx context.Context, repo *git.Repo, base string, req SnapshotRequest) (Snapshot, error) {
	snapshot, err := s.history(base).take(ctx, repo, req)
	if err == nil && snapshot.Created {
		s.repo.record(s.ID, snapshotEvent{s.repo.now(), "snapshot", snapshot.ID, snapshot.Ref})
	}
	return snapshot, err
}

// history is that of the snapshots of the sandbox.
func (s *Sandbox) history(base string) history {
	return history{repo: s.repo, id: s.ID, of: "sandbox " + s.ID, subject: func(message string) git.Subject { return s.subject(base, message) }}
}

// subject says what belongs to the sandbox, and as what it is to be frozen.
func (s *Sandbox) subject(base, message string) git.Subject {
	return git.Subject{
		Name: s.ID, Tree: s.tree, Branch: sandboxRef(s.ID), Base: base, Layer: s.layer(),
		Message: fmt.Sprintf("%s\n\nAgency-Invocation: %s\nAgency-Base: %s\nAgency-Version: %s", message, s.ID, base, cmp.Or(s.repo.opts.Version, "unknown")),
	}
}

type snapshotEvent struct {
	Time     time.Time `json:"time"`
	Event    string    `json:"event"`
	Snapshot string    `json:"snapshot"`
	Ref      string    `json:"ref"`
}
