package gitagency

import (
	"context"
	"errors"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// passage is a way of a sandbox from the state that it is in to another, which a snapshot holds.
type passage struct {
	verb     string   // required: its steps are called by it
	to       Snapshot // that state; empty when nobody was in it yet
	arriving string   // then, what the snapshot of it says
	leaving  string   // required: what the snapshot of the state that is left says
	why      string   // required: for the logs of git
	synced   string   // the commit of the integration branch that the state has and the one before has not
	again    bool     // one that was interrupted may have come some of the way
	trusted  bool     // the settings are the user's alone, also where that state comes from

	// aim says what the state is, to whoever is in another; errAlready when there is no need to go.
	aim func(ctx context.Context, from git.State) (git.State, error)
	// spare, which may be nil, refuses that some files go which are in the way, and which no state would hold.
	spare func(ctx context.Context, from git.State, paths []string) error
}

// passed is what came of it.
type passed struct {
	left, to                Snapshot // the state that was left, and the one that it is in
	added, changed, removed int      // files
	strayed                 string   // the branch that HEAD could not be on
}

// errAlready is a sandbox that is where it was to go.
var errAlready = errors.New("it is in that state")

// pass is the transaction. Until the index is locked nothing has happened in the sandbox, and what fails is undone;
// from then on every step only goes on, and may be done again by whoever finds the note of it: the error is a
// *HalfWayError then. The caller has the sandbox to itself.
func (s *Sandbox) pass(ctx context.Context, repo *git.Repo, place *site, p passage) (done passed, err error) {
	resume, err := s.quiesce(ctx, place)
	if err != nil {
		return passed{}, err
	}
	defer resume()
	tx := s.repo.begin(p.verb)
	defer func() {
		if err != nil {
			rollback(ctx, tx)
		}
	}()
	// 1., 2. The state that is left, with what would be in the way.
	subject, err := s.repo.capturable(s.subject(place.base, ""))
	if err != nil {
		return passed{}, err
	}
	subject.Trusted = subject.Trusted && p.trusted
	var from, target git.State
	stamp := repo.Stamp(s.ID)
	left, err := s.history(place.base).taken(ctx, tx, repo, SnapshotRequest{Message: p.leaving}, func(commit string) ([]string, error) {
		if from, err = repo.ReadState(ctx, commit); err != nil {
			return nil, err
		}
		if target, err = p.aim(ctx, from); err != nil {
			return nil, err
		}
		also, err := repo.InTheWay(ctx, subject, from, target)
		if err == nil && p.spare != nil && len(also) > 0 {
			err = p.spare(ctx, from, also)
		}
		return also, err
	})
	if err != nil {
		return passed{}, err
	}
	if from.Commit != left.ID { // what was in the way is in it too
		if from, err = repo.ReadState(ctx, left.ID); err != nil {
			return passed{}, err
		}
	}
	known := left.ID
	if left.Created { // what it holds is about to be nowhere else
		known = from.Parents[0]
	}
	if p.to.ID == "" {
		if err := tx.Step(ctx, "state", func() (err error) {
			p.to, target, err = s.foresee(ctx, tx, repo, place.base, left, target, p.arriving)
			return err
		}); err != nil {
			return passed{}, err
		}
	}
	done = passed{left: left, to: p.to}
	if left.Created || p.to.Created {
		last := left
		if p.to.Created {
			last = p.to
		}
		if err := tx.Step(ctx, "pack", func() error { return repo.Pack(ctx, last.ID, known) }); err != nil {
			return passed{}, err
		}
	}
	began, err := s.began(ctx, repo, p.again)
	if err != nil {
		return passed{}, err
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
		return passed{}, err
	}
	restore.Again = p.again
	// 4. The note, in case we do not live to finish it.
	note := store.Rollback{
		InvocationID: s.ID, Snapshot: p.to.ID, SnapshotRef: p.to.Ref, Left: left.ID, LeftRef: left.Ref, Began: began.Commit,
		Verb: p.verb, Synced: p.synced, PID: os.Getpid(), StartedAt: s.repo.now(),
	}
	if err := tx.Step(ctx, "note", func() error {
		if !p.again {
			tx.Undo("note", func(context.Context) error { return s.repo.store.RemoveRollback(s.repo.ID, s.ID) })
		}
		return s.repo.store.WriteRollback(s.repo.ID, note)
	}); err != nil {
		return passed{}, err
	}
	// 5. No git of anybody else's writes there any more. By the note, the lock of one who was killed is known for ours.
	if err := tx.Step(ctx, "lock", func() error { return restore.Lock(ctx, stamp) }); err != nil {
		return passed{}, err
	}
	tx.Commit()
	for _, taken := range []Snapshot{left, p.to} {
		if taken.Created {
			s.repo.record(s.ID, snapshotEvent{s.repo.now(), "snapshot", taken.ID, taken.Ref})
		}
	}
	// 6.–11. Each of them may have been done before.
	onward := context.WithoutCancel(ctx)
	steps := []step{
		{"files", func() error { return restore.Files(onward) }},
		{"heads", func() error { return restore.Heads(onward, toolIdentity, s.repo.now(), p.why) }},
		{"underway", restore.Underway},
		{"index", func() error { return restore.Index(onward) }},
		{"layer", func() error { return s.alignLayer(onward, restore, place.prims) }},
	}
	if p.synced != "" {
		steps = append(steps, step{"record", func() error {
			return s.repo.store.UpdateInvocationMeta(s.repo.ID, s.ID, func(m *store.InvocationMeta) { m.SyncedCommit = p.synced })
		}})
	}
	steps = append(steps, step{"done", func() error { return s.repo.store.RemoveRollback(s.repo.ID, s.ID) }})
	if err := s.repo.forward(onward, p.verb, steps); err != nil {
		return done, &HalfWayError{ID: s.ID, To: p.to.name(), Left: left.name(), Err: err}
	}
	done.added, done.changed, done.removed = restore.Changed()
	if done.strayed = short(restore.Strayed); restore.Unstaged {
		s.repo.warn("sandbox %s: the snapshot does not say what was staged; it is what HEAD has now", s.ID)
	}
	return done, nil
}

// foresee takes a snapshot of a state that the sandbox is to be in, behind that of the one it leaves: whoever has to
// finish this finds it there, and whoever takes one when it is done finds that there is one.
func (s *Sandbox) foresee(ctx context.Context, tx *undo.Tx, repo *git.Repo, base string, left Snapshot, state git.State, message string) (Snapshot, git.State, error) {
	to := Snapshot{Invocation: s.ID, Number: left.Number + 1, Created: true}
	to.Ref = snapshotRef(s.ID, to.Number)
	subject, err := s.repo.capturable(s.subject(base, message))
	if err != nil {
		return to, state, err
	}
	if to.ID, err = repo.WriteState(ctx, subject, left.ID, state); err != nil {
		return to, state, err
	}
	if err := keepSnapshot(ctx, tx, repo, to, to.ID); err != nil {
		return to, state, err
	}
	state, err = s.target(ctx, repo, to)
	return to, state, err
}
