package sandbox

import (
	"cmp"
	"context"
	"errors"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// transition moves a sandbox from its current state to another state, which a snapshot holds.
type transition struct {
	verb          string             // required: prefix of its step names
	to            snapshots.Snapshot // target state; empty when it has no snapshot yet
	targetMessage string             // message of the snapshot of the target; only when to is empty
	sourceMessage string             // required: message of the snapshot of the current state
	reflogMessage string             // required: reflog message
	syncedCommit  string             // commit of the integration branch that a sync merges; empty for a rollback
	resuming      bool               // resumes an interrupted transition, which may be partly done
	trustsConfig  bool               // only the user can have written the configuration, also at the origin of the target

	// chooseTarget returns the target state, given the current one, or errAlreadyInState.
	chooseTarget func(ctx context.Context, from snapshot.State) (snapshot.State, error)
	// checkOverwrite, which may be nil, refuses to remove files that are in the way of the target and that no
	// snapshot would hold otherwise.
	checkOverwrite func(ctx context.Context, from snapshot.State, paths []string) error
}

// transitionResult reports a completed transition.
type transitionResult struct {
	source, target          snapshots.Snapshot // snapshots before and after
	added, changed, removed int                // numbers of files
	detachedFrom            string             // branch that HEAD could not be attached to; HEAD is detached then
}

// errAlreadyInState means that the sandbox is in the target state.
var errAlreadyInState = errors.New("the sandbox is already in that state")

// runTransition is the transaction. Until the index is locked nothing has changed in the sandbox, and a failure is
// undone. After that the steps only go forward, and any process that finds the journal can repeat them; the error is
// a *UnfinishedTransitionError then. The caller has exclusive use of the sandbox.
func (s *Sandbox) runTransition(ctx context.Context, repo *git.Repo, h *Handle, p transition) (result transitionResult, err error) {
	resume, err := s.PauseUploads(ctx, h)
	if err != nil {
		return transitionResult{}, err
	}
	defer resume()
	tx := s.Repo.BeginTx(p.verb)
	defer func() {
		if err != nil {
			core.RollbackTx(ctx, tx)
		}
	}()
	// 1., 2. snapshots.Snapshot the current state, including files that are in the way of the target.
	subject, err := s.Repo.PrepareCapture(s.SnapshotSubject(h.Base, ""))
	if err != nil {
		return transitionResult{}, err
	}
	subject.TrustConfig = subject.TrustConfig && p.trustsConfig
	mounted, unmount, err := s.mountForChange(ctx, repo, h)
	if err != nil {
		return transitionResult{}, err
	}
	defer unmount()
	subject.Mounted = mounted
	var from, target snapshot.State
	stamp := snapshot.IndexStamp(repo, s.ID)
	left, err := s.series(h.Base).TakeSteps(ctx, tx, repo, snapshots.TakeRequest{Message: p.sourceMessage}, func(commit string) ([]string, error) {
		if from, err = snapshot.ReadState(ctx, repo, commit); err != nil {
			return nil, err
		}
		if target, err = p.chooseTarget(ctx, from); err != nil {
			return nil, err
		}
		also, err := snapshot.ObstructingPaths(ctx, repo, subject, from, target)
		if err == nil && p.checkOverwrite != nil && len(also) > 0 {
			err = p.checkOverwrite(ctx, from, also)
		}
		return also, err
	})
	if err != nil {
		return transitionResult{}, err
	}
	if from.Commit != left.ID { // captured again, with the files in the way
		if from, err = snapshot.ReadState(ctx, repo, left.ID); err != nil {
			return transitionResult{}, err
		}
	}
	known := left.ID
	if left.Created { // its objects are about to be kept by nothing else
		known = from.Parents[0]
	}
	if p.to.ID == "" {
		if err := tx.Step(ctx, "state", func() (err error) {
			p.to, target, err = s.snapshotTarget(ctx, tx, repo, h.Base, left, target, p.targetMessage)
			return err
		}); err != nil {
			return transitionResult{}, err
		}
	}
	result = transitionResult{source: left, target: p.to}
	if left.Created || p.to.Created {
		last := left
		if p.to.Created {
			last = p.to
		}
		if err := tx.Step(ctx, "pack", func() error { return repo.PackReachable(ctx, last.ID, known) }); err != nil {
			return transitionResult{}, err
		}
	}
	origin, err := s.rollbackOrigin(ctx, repo, p.resuming)
	if err != nil {
		return transitionResult{}, err
	}
	// 3. Check everything that could fail half-way.
	var restore *snapshot.Restoration
	defer func() {
		if closeErr := restore.Close(); closeErr != nil {
			s.Repo.Warn("%s: %v", s.Tree, closeErr)
		}
	}()
	if err := tx.Step(ctx, "prepare", func() (err error) {
		restore, err = snapshot.PrepareRestore(ctx, repo, subject, from, target, origin)
		return err
	}); err != nil {
		return transitionResult{}, err
	}
	restore.RemoveBranchLock = p.resuming
	// 4. Write the journal by which another process can finish the transition.
	note := store.RollbackJournal{
		InvocationID: s.ID, SnapshotCommit: p.to.ID, SnapshotRef: p.to.Ref, LeftCommit: left.ID, LeftRef: left.Ref, FirstLeftCommit: origin.Commit,
		Verb: p.verb, SyncedCommit: p.syncedCommit, PID: os.Getpid(), StartedAt: s.Repo.Now(),
	}
	if err := tx.Step(ctx, "note", func() error {
		if !p.resuming {
			tx.Undo("note", func(context.Context) error { return s.Repo.Store.RemoveRollbackJournal(s.Repo.ID, s.ID) })
		}
		return s.Repo.Store.WriteRollbackJournal(s.Repo.ID, note)
	}); err != nil {
		return transitionResult{}, err
	}
	// 5. Lock the index against other git processes. The journal identifies a lock left by a killed transition as ours.
	if err := tx.Step(ctx, "lock", func() error { return restore.LockIndex(ctx, stamp) }); err != nil {
		return transitionResult{}, err
	}
	tx.Commit()
	for _, taken := range []snapshots.Snapshot{left, p.to} {
		if taken.Created {
			s.Repo.AppendEvent(s.ID, snapshotEvent{s.Repo.EventTime(), "snapshot", taken.ID, taken.Ref})
		}
	}
	// 6.–11. Each of these steps may have been done before.
	onward := context.WithoutCancel(ctx)
	steps := []core.Step{
		{Name: "files", Do: func() error { return restore.RestoreFiles(onward) }},
		{Name: "heads", Do: func() error { return restore.RestoreHeads(onward, core.ToolIdentity, s.Repo.Now(), p.reflogMessage) }},
		{Name: "underway", Do: restore.RestoreOperation},
		{Name: "index", Do: func() error {
			if err := restore.RestoreIndex(onward); err != nil {
				return err
			}
			return core.WorktreeBackend(repo).KeepIndex(onward, s.ID, cmp.Or(target.BranchTip, target.Head))
		}},
		{Name: "layer", Do: func() error { return s.restoreUpper(onward, restore, h.Prims) }},
	}
	if p.syncedCommit != "" {
		steps = append(steps, core.Step{Name: "record", Do: func() error {
			return s.Repo.Store.UpdateInvocationMeta(s.Repo.ID, s.ID, func(m *store.InvocationMeta) { m.SyncedCommit = p.syncedCommit })
		}})
	}
	steps = append(steps, core.Step{Name: "done", Do: func() error { return s.Repo.Store.RemoveRollbackJournal(s.Repo.ID, s.ID) }})
	if err := s.Repo.RunSteps(onward, p.verb, steps); err != nil {
		return result, &fault.UnfinishedTransitionError{ID: s.ID, To: p.to.Name(), LeftSnapshot: left.Name(), Err: err}
	}
	result.added, result.changed, result.removed = restore.ChangeCounts()
	if result.detachedFrom = core.ShortBranch(restore.DetachedFrom); restore.IndexFromHead {
		s.Repo.Warn("sandbox %s: the snapshot does not record the index; the index was reset to HEAD", s.ID)
	}
	return result, nil
}

// snapshotTarget writes a snapshot of the target state, with the number after that of the current state: a process
// that has to finish the transition finds it there, and a later snapshot of the same state is a no-op.
func (s *Sandbox) snapshotTarget(ctx context.Context, tx *undo.Tx, repo *git.Repo, base string, left snapshots.Snapshot, state snapshot.State, message string) (snapshots.Snapshot, snapshot.State, error) {
	to := snapshots.Snapshot{Invocation: s.ID, Number: left.Number + 1, Created: true}
	to.Ref = core.SnapshotRef(s.ID, to.Number)
	subject, err := s.Repo.PrepareCapture(s.SnapshotSubject(base, message))
	if err != nil {
		return to, state, err
	}
	if to.ID, err = snapshot.WriteState(ctx, repo, subject, left.ID, state); err != nil {
		return to, state, err
	}
	if err := snapshots.Keep(ctx, tx, repo, to, to.ID); err != nil {
		return to, state, err
	}
	state, err = s.readTarget(ctx, repo, to)
	return to, state, err
}
