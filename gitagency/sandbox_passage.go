package gitagency

import (
	"context"
	"errors"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// transition moves a sandbox from its current state to another state, which a snapshot holds.
type passage struct {
	verb     string   // required: prefix of its step names
	to       Snapshot // target state; empty when it has no snapshot yet
	arriving string   // message of the snapshot of the target; only when to is empty
	leaving  string   // required: message of the snapshot of the current state
	why      string   // required: reflog message
	synced   string   // commit of the integration branch that a sync merges; empty for a rollback
	again    bool     // resumes an interrupted transition, which may be partly done
	trusted  bool     // only the user can have written the configuration, also at the origin of the target

	// chooseTarget returns the target state, given the current one, or errAlreadyThere.
	aim func(ctx context.Context, from git.State) (git.State, error)
	// checkOverwrite, which may be nil, refuses to remove files that are in the way of the target and that no
	// snapshot would hold otherwise.
	spare func(ctx context.Context, from git.State, paths []string) error
}

// transitionResult reports a completed transition.
type passed struct {
	left, to                Snapshot // snapshots before and after
	added, changed, removed int      // numbers of files
	strayed                 string   // branch that HEAD could not be attached to; HEAD is detached then
}

// errAlreadyThere means that the sandbox is in the target state.
var errAlready = errors.New("it is in that state")

// runTransition is the transaction. Until the index is locked nothing has changed in the sandbox, and a failure is
// undone. After that the steps only go forward, and any process that finds the note can repeat them; the error is a
// *HalfWayError then. The caller has exclusive use of the sandbox.
func (s *Sandbox) pass(ctx context.Context, repo *git.Repo, h *site, p passage) (result passed, err error) {
	resume, err := s.quiesce(ctx, h)
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
	// 1., 2. Snapshot the current state, including files that are in the way of the target.
	subject, err := s.repo.capturable(s.subject(h.base, ""))
	if err != nil {
		return passed{}, err
	}
	subject.Trusted = subject.Trusted && p.trusted
	var from, target git.State
	stamp := repo.Stamp(s.ID)
	left, err := s.history(h.base).taken(ctx, tx, repo, SnapshotRequest{Message: p.leaving}, func(commit string) ([]string, error) {
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
	if from.Commit != left.ID { // captured again, with the files in the way
		if from, err = repo.ReadState(ctx, left.ID); err != nil {
			return passed{}, err
		}
	}
	known := left.ID
	if left.Created { // its objects are about to be kept by nothing else
		known = from.Parents[0]
	}
	if p.to.ID == "" {
		if err := tx.Step(ctx, "state", func() (err error) {
			p.to, target, err = s.foresee(ctx, tx, repo, h.base, left, target, p.arriving)
			return err
		}); err != nil {
			return passed{}, err
		}
	}
	result = passed{left: left, to: p.to}
	if left.Created || p.to.Created {
		last := left
		if p.to.Created {
			last = p.to
		}
		if err := tx.Step(ctx, "pack", func() error { return repo.Pack(ctx, last.ID, known) }); err != nil {
			return passed{}, err
		}
	}
	origin, err := s.began(ctx, repo, p.again)
	if err != nil {
		return passed{}, err
	}
	// 3. Check everything that could fail half-way.
	var restore *git.Restoration
	defer func() {
		if closeErr := restore.Close(); closeErr != nil {
			s.repo.warn("%s: %v", s.tree, closeErr)
		}
	}()
	if err := tx.Step(ctx, "prepare", func() (err error) {
		restore, err = repo.Restore(ctx, subject, from, target, origin)
		return err
	}); err != nil {
		return passed{}, err
	}
	restore.Again = p.again
	// 4. Write the note by which another process can finish the transition.
	note := store.Rollback{
		InvocationID: s.ID, Snapshot: p.to.ID, SnapshotRef: p.to.Ref, Left: left.ID, LeftRef: left.Ref, Began: origin.Commit,
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
	// 5. Lock the index against other git processes. The note identifies a lock left by a killed transition as ours.
	if err := tx.Step(ctx, "lock", func() error { return restore.Lock(ctx, stamp) }); err != nil {
		return passed{}, err
	}
	tx.Commit()
	for _, taken := range []Snapshot{left, p.to} {
		if taken.Created {
			s.repo.record(s.ID, snapshotEvent{s.repo.now(), "snapshot", taken.ID, taken.Ref})
		}
	}
	// 6.–11. Each of these steps may have been done before.
	onward := context.WithoutCancel(ctx)
	steps := []step{
		{"files", func() error { return restore.Files(onward) }},
		{"heads", func() error { return restore.Heads(onward, toolIdentity, s.repo.now(), p.why) }},
		{"underway", restore.Underway},
		{"index", func() error { return restore.Index(onward) }},
		{"layer", func() error { return s.alignLayer(onward, restore, h.prims) }},
	}
	if p.synced != "" {
		steps = append(steps, step{"record", func() error {
			return s.repo.store.UpdateInvocationMeta(s.repo.ID, s.ID, func(m *store.InvocationMeta) { m.SyncedCommit = p.synced })
		}})
	}
	steps = append(steps, step{"done", func() error { return s.repo.store.RemoveRollback(s.repo.ID, s.ID) }})
	if err := s.repo.forward(onward, p.verb, steps); err != nil {
		return result, &HalfWayError{ID: s.ID, To: p.to.name(), Left: left.name(), Err: err}
	}
	result.added, result.changed, result.removed = restore.Changed()
	if result.strayed = short(restore.Strayed); restore.Unstaged {
		s.repo.warn("sandbox %s: the snapshot does not say what was staged; it is what HEAD has now", s.ID)
	}
	return result, nil
}

// snapshotTarget writes a snapshot of the target state, with the number after that of the current state: a process
// that has to finish the transition finds it there, and a later snapshot of the same state is a no-op.
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
