package gitagency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// RollbackRequest selects the state that a sandbox returns to.
type RollbackRequest struct {
	Snapshot string // required: commit, in full or as a unique prefix, or "<invocation>/<number>"
}

// RollbackResult reports a rollback.
type Rolled struct {
	Invocation string `json:"invocation_id"`
	Snapshot   string `json:"snapshot"`  // commit of the snapshot that the sandbox is now at
	Name       string `json:"name"`      // name of that snapshot: <invocation>/<number>
	Left       string `json:"left"`      // commit of the snapshot taken before the rollback
	LeftName   string `json:"left_name"` // name of that snapshot; a rollback to it undoes this one
	Already    bool   `json:"already"`   // the sandbox was in that state; nothing has changed
	Added      int    `json:"added"`     // number of files
	Changed    int    `json:"changed"`
	Removed    int    `json:"removed"`
	Strayed    string `json:"strayed"` // branch that HEAD was on and that has moved since; HEAD is detached then
}

// Rollback returns the sandbox to a snapshot: files, index, HEAD and the branch of the sandbox, and a merge or rebase
// that was in progress. Files created later are removed. Files that no snapshot holds stay: ignored files, nested
// repositories, left-out files. The current state is snapshotted first, including files that are in the way of the
// target, so that another rollback can undo this one.
//
// Rollback does not end commands: if some run in the sandbox, the error is a *RunningError; if another git writes in
// it, a *GitAtWorkError. Until the first change a failure or cancellation is undone; after it the rollback is
// finished, by this call or by the next command that works in the sandbox; the error is a *HalfWayError then.
func (s *Sandbox) Rollback(ctx context.Context, req RollbackRequest) (Rolled, error) {
	if req.Snapshot == "" {
		return Rolled{}, &InvalidError{What: "snapshot", Want: "its commit, or <id>/<number>"}
	}
	repo, unlock, err := s.repo.lock(ctx)
	if err != nil {
		return Rolled{}, err
	}
	defer unlock()
	to, err := s.repo.snapshotNamed(ctx, repo, req.Snapshot)
	if err != nil {
		return Rolled{}, err
	}
	h, leave, err := s.openAlone(ctx)
	if err != nil {
		return Rolled{}, err
	}
	defer leave()
	if err := s.finish(ctx, repo, h); err != nil { // not fatal: the new target replaces the old one
		s.repo.warn("sandbox %s: %v", s.ID, err)
	}
	ctx, cancel, err := s.repo.bounded(ctx, "rollback")
	if err != nil {
		return Rolled{}, err
	}
	defer cancel()
	if err := s.bringOutAlone(ctx, repo, h); err != nil {
		return Rolled{}, fmt.Errorf("rollback of %s: %w", s.ID, err)
	}
	rolled, err := s.goBack(ctx, repo, h, to, s.halfWay())
	if err != nil && !is[*HalfWayError](err) {
		err = fmt.Errorf("rollback of %s: %w", s.ID, err)
	}
	return rolled, err
}

// rollBackTo runs the transition to a snapshot.
func (s *Sandbox) goBack(ctx context.Context, repo *git.Repo, h *site, to Snapshot, resuming bool) (Rolled, error) {
	target, err := s.target(ctx, repo, to)
	if err != nil {
		return Rolled{}, err
	}
	done, err := s.pass(ctx, repo, h, passage{
		verb: "rollback", to: to, again: resuming, trusted: s.repo.trustsSettings(to.Invocation),
		leaving: "agency: before the rollback to " + to.name(), why: "agency: rollback to " + to.name(),
		aim: func(_ context.Context, from git.State) (git.State, error) {
			if from.Same(target) && !resuming {
				return git.State{}, errAlready
			}
			return target, nil
		},
	})
	if errors.Is(err, errAlready) {
		return Rolled{Invocation: s.ID, Snapshot: to.ID, Name: to.name(), Left: to.ID, LeftName: to.name(), Already: true}, nil
	}
	if err != nil {
		return Rolled{}, err
	}
	s.repo.record(s.ID, rollbackEvent{s.repo.now(), "rollback", to.ID, to.Ref, done.left.ID, done.left.Ref})
	return Rolled{
		Invocation: s.ID, Snapshot: to.ID, Name: to.name(), Left: done.left.ID, LeftName: done.left.name(),
		Added: done.added, Changed: done.changed, Removed: done.removed, Strayed: done.strayed,
	}, nil
}

type rollbackEvent struct {
	Time     time.Time `json:"time"`
	Event    string    `json:"event"`
	Snapshot string    `json:"snapshot"`
	Ref      string    `json:"ref"`
	Left     string    `json:"left"`
	LeftRef  string    `json:"left_ref"`
}

// readTarget reads the state of a snapshot as a state of this sandbox: a state on the branch of the snapshot's own
// sandbox becomes one on the branch of this sandbox.
func (s *Sandbox) target(ctx context.Context, repo *git.Repo, to Snapshot) (git.State, error) {
	target, err := repo.ReadState(ctx, to.ID)
	if err != nil {
		return git.State{}, err
	}
	if target.On == sandboxRef(to.Invocation) || target.On == "" {
		target.On = sandboxRef(s.ID)
	}
	names := []string{target.Head + "^{commit}", target.Tip + "^{commit}"}
	if target.Index != "" {
		names = append(names, target.Index+"^{tree}")
	}
	if target.Held != "" {
		names = append(names, target.Held+"^{commit}")
	}
	found, err := repo.Lookup(ctx, names...)
	if err != nil {
		return git.State{}, err
	}
	for i, o := range found {
		if o.Missing() {
			return git.State{}, fmt.Errorf("snapshot %s is not whole: it names %s, which is not there", to.name(), names[i])
		}
	}
	return target, nil
}

// errImportFailed means that git state behind the walls could not be imported, so a snapshot would not hold it.
var errStuckInside = errors.New("what was done behind the walls has not come out")
