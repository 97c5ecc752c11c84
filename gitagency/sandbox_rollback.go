package gitagency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// RollbackRequest says to which state a sandbox goes back.
type RollbackRequest struct {
	Snapshot string // required: its commit, in full or a unique prefix, or "<invocation>/<number>"
}

// Rolled is what came of a rollback.
type Rolled struct {
	Invocation string `json:"invocation_id"`
	Snapshot   string `json:"snapshot"`  // the state that the sandbox is in now: the full id of the commit
	Name       string `json:"name"`      // of that snapshot: <invocation>/<number>
	Left       string `json:"left"`      // the snapshot of the state that was left
	LeftName   string `json:"left_name"` // by which a rollback goes back to it
	Already    bool   `json:"already"`   // it was in that state; nothing has changed
	Added      int    `json:"added"`     // files that came back
	Changed    int    `json:"changed"`
	Removed    int    `json:"removed"`
	Strayed    string `json:"strayed"` // the branch that HEAD was on and that is elsewhere now, so that HEAD is detached
}

// Rollback takes the sandbox back to a snapshot: files, what is staged, HEAD and the branch of the sandbox become what
// they were, also a merge or rebase that was under way; files that came later go. What no snapshot holds stays: ignored
// files, repositories inside, what was left out. The state that is left is snapshotted first, with whatever is in the
// way of the other, so that a rollback can always be undone by another.
//
// It ends nothing: commands that run in the sandbox are a *RunningError, and another git that writes in it is a
// *GitAtWorkError. Until the first change whatever fails or is cancelled is undone; from then on it is finished, by
// this call, or by the next command that works in the sandbox: then the error is a *HalfWayError.
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
	place, leave, err := s.openAlone(ctx)
	if err != nil {
		return Rolled{}, err
	}
	defer leave()
	if err := s.finish(ctx, repo, place); err != nil { // then where it is going is where it goes now
		s.repo.warn("sandbox %s: %v", s.ID, err)
	}
	ctx, cancel, err := s.repo.bounded(ctx, "rollback")
	if err != nil {
		return Rolled{}, err
	}
	defer cancel()
	if err := s.bringOutAlone(ctx, repo, place); err != nil {
		return Rolled{}, fmt.Errorf("rollback of %s: %w", s.ID, err)
	}
	rolled, err := s.goBack(ctx, repo, place, to, s.halfWay())
	if err != nil && !is[*HalfWayError](err) {
		err = fmt.Errorf("rollback of %s: %w", s.ID, err)
	}
	return rolled, err
}

// goBack is the passage to a snapshot.
func (s *Sandbox) goBack(ctx context.Context, repo *git.Repo, place *site, to Snapshot, again bool) (Rolled, error) {
	target, err := s.target(ctx, repo, to)
	if err != nil {
		return Rolled{}, err
	}
	done, err := s.pass(ctx, repo, place, passage{
		verb: "rollback", to: to, again: again, trusted: s.repo.trustsSettings(to.Invocation),
		leaving: "agency: before the rollback to " + to.name(), why: "agency: rollback to " + to.name(),
		aim: func(_ context.Context, from git.State) (git.State, error) {
			if from.Same(target) && !again {
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

// target reads the state that a snapshot holds, as this sandbox can be in it: one of another sandbox is on this one's
// branch.
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

// errStuckInside is work behind walls that no snapshot can hold before it has come out.
var errStuckInside = errors.New("what was done behind the walls has not come out")
