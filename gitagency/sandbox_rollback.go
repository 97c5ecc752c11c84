package gitagency

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
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
		return Rolled{}, fmt.Errorf("rollback of %s: %w", s.ID, err)
	}
	return rolled, err
}

// goBack is the transaction. Until the index is locked nothing has happened in the sandbox, and what fails is undone;
// from then on every step only goes on, and may be done again by whoever finds the note of it.
func (s *Sandbox) goBack(ctx context.Context, repo *git.Repo, place *site, to Snapshot, again bool) (rolled Rolled, err error) {
	resume, err := s.quiesce(ctx, place)
	if err != nil {
		return Rolled{}, err
	}
	defer resume()
	tx := s.repo.begin("rollback")
	defer func() {
		if err != nil {
			rollback(ctx, tx)
		}
	}()
	target, err := s.target(ctx, repo, to)
	if err != nil {
		return Rolled{}, err
	}
	// 1., 2. The state that is left, with what would be in the way.
	subject, err := s.repo.capturable(s.subject(place.base, ""))
	if err != nil {
		return Rolled{}, err
	}
	subject.Trusted = subject.Trusted && s.repo.trustsSettings(to.Invocation)
	var from git.State
	stamp := repo.Stamp(s.ID)
	left, err := s.history(place.base).taken(ctx, tx, repo, SnapshotRequest{Message: "agency: before the rollback to " + to.name()}, func(commit string) ([]string, error) {
		if from, err = repo.ReadState(ctx, commit); err != nil {
			return nil, err
		}
		if from.Same(target) && !again {
			return nil, errAlready
		}
		return repo.InTheWay(ctx, subject, from, target)
	})
	if errors.Is(err, errAlready) {
		return Rolled{Invocation: s.ID, Snapshot: to.ID, Name: to.name(), Left: to.ID, LeftName: to.name(), Already: true}, nil
	}
	if err != nil {
		return Rolled{}, err
	}
	rolled = Rolled{Invocation: s.ID, Snapshot: to.ID, Name: to.name(), Left: left.ID, LeftName: left.name()}
	if from.Commit != left.ID { // what was in the way is in it too
		if from, err = repo.ReadState(ctx, left.ID); err != nil {
			return Rolled{}, err
		}
	}
	if left.Created { // what it holds is about to be nowhere else
		if err := tx.Step(ctx, "pack", func() error { return repo.Pack(ctx, left.ID, from.Parents[0]) }); err != nil {
			return Rolled{}, err
		}
	}
	began, err := s.began(ctx, repo, again)
	if err != nil {
		return Rolled{}, err
	}
	// 3. Whatever could stop it half-way stops it here.
	var restore *git.Restoration
	defer func() {
		if closeErr := restore.Close(); closeErr != nil {
			s.repo.warn("%s: %v", s.tree, closeErr)
		}
	}()
	if err := tx.Step(ctx, "prepare", func() (err error) {
		restore, err = repo.Restore(ctx, subject, from, target, began)
		return err
	}); err != nil {
		return Rolled{}, err
	}
	restore.Again = again
	// 4. The note, in case we do not live to finish it.
	note := store.Rollback{
		InvocationID: s.ID, Snapshot: to.ID, SnapshotRef: to.Ref, Left: left.ID, LeftRef: left.Ref, Began: began.Commit,
		PID: os.Getpid(), StartedAt: s.repo.now(),
	}
	if err := tx.Step(ctx, "note", func() error {
		if !again {
			tx.Undo("note", func(context.Context) error { return s.repo.store.RemoveRollback(s.repo.ID, s.ID) })
		}
		return s.repo.store.WriteRollback(s.repo.ID, note)
	}); err != nil {
		return Rolled{}, err
	}
	// 5. No git of anybody else's writes there any more. By the note, the lock of one who was killed is known for ours.
	if err := tx.Step(ctx, "lock", func() error { return restore.Lock(ctx, stamp) }); err != nil {
		return Rolled{}, err
	}
	tx.Commit()
	if left.Created {
		s.repo.record(s.ID, snapshotEvent{s.repo.now(), "snapshot", left.ID, left.Ref})
	}
	// 6.–11. Each of them may have been done before.
	why := "agency: rollback to " + to.name()
	onward := context.WithoutCancel(ctx)
	if err := s.repo.forward(onward, "rollback", []step{
		{"files", func() error { return restore.Files(onward) }},
		{"heads", func() error { return restore.Heads(onward, toolIdentity, s.repo.now(), why) }},
		{"underway", restore.Underway},
		{"index", func() error { return restore.Index(onward) }},
		{"layer", func() error { return s.alignLayer(onward, restore, place.prims) }},
		{"done", func() error { return s.repo.store.RemoveRollback(s.repo.ID, s.ID) }},
	}); err != nil {
		return rolled, &HalfWayError{ID: s.ID, To: to.name(), Left: left.name(), Err: err}
	}
	rolled.Added, rolled.Changed, rolled.Removed = restore.Changed()
	if rolled.Strayed = short(restore.Strayed); restore.Unstaged {
		s.repo.warn("sandbox %s: the snapshot does not say what was staged; it is what HEAD has now", s.ID)
	}
	s.repo.record(s.ID, rollbackEvent{s.repo.now(), "rollback", to.ID, to.Ref, left.ID, left.Ref})
	return rolled, nil
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

// errAlready is a sandbox that is in the state that it was to go back to.
var errAlready = errors.New("it is in that state")

// errStuckInside is work behind walls that no snapshot can hold before it has come out.
var errStuckInside = errors.New("what was done behind the walls has not come out")
