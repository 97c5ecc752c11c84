package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// RollbackRequest selects the state that a sandbox returns to.
type RollbackRequest struct {
	Snapshot string // required: commit, in full or as a unique prefix, or "<invocation>/<number>"
}

// RollbackResult reports a rollback.
type RollbackResult struct {
	Invocation   string `json:"invocation_id"`
	Snapshot     string `json:"snapshot"`  // commit of the snapshot that the sandbox is now at
	Name         string `json:"name"`      // name of that snapshot: <invocation>/<number>
	Left         string `json:"left"`      // commit of the snapshot taken before the rollback
	LeftName     string `json:"left_name"` // name of that snapshot; a rollback to it undoes this one
	Already      bool   `json:"already"`   // the sandbox was in that state; nothing has changed
	Added        int    `json:"added"`     // number of files
	Changed      int    `json:"changed"`
	Removed      int    `json:"removed"`
	DetachedFrom string `json:"strayed"` // branch that HEAD was on and that has moved since; HEAD is detached then
}

// Rollback returns the sandbox to a snapshot: files, index, HEAD and the branch of the sandbox, and a merge or rebase
// that was in progress. Files created later are removed. Files that no snapshot holds stay: ignored files, nested
// repositories, left-out files. The current state is snapshotted first, including files that are in the way of the
// target, so that another rollback can undo this one.
//
// Rollback does not end commands: if some run in the sandbox, the error is a *RunningError; if another git writes in
// it, a *GitLockedError. Until the first change a failure or cancellation is undone; after it the rollback is
// finished, by this call or by the next command that works in the sandbox; the error is a *UnfinishedTransitionError then.
func (s *Sandbox) Rollback(ctx context.Context, req RollbackRequest) (RollbackResult, error) {
	if req.Snapshot == "" {
		return RollbackResult{}, &fault.InvalidError{What: "snapshot", Want: "its commit, or <id>/<number>"}
	}
	if err := s.CheckNoOpenJob(); err != nil {
		return RollbackResult{}, err
	}
	return s.rollBack(ctx, req)
}

func (s *Sandbox) rollBack(ctx context.Context, req RollbackRequest) (RollbackResult, error) {
	s.ImportUnlocked(ctx)
	repo, unlock, err := s.Repo.LockAndRecover(ctx)
	if err != nil {
		return RollbackResult{}, err
	}
	defer unlock()
	to, err := snapshots.Find(ctx, s.Repo, repo, req.Snapshot)
	if err != nil {
		return RollbackResult{}, err
	}
	h, leave, err := s.OpenExclusive(ctx)
	if err != nil {
		return RollbackResult{}, err
	}
	defer leave()
	if err := s.ResumeRollback(ctx, repo, h); err != nil { // not fatal: the new target replaces the old one
		s.Repo.Warn("sandbox %s: %v", s.ID, err)
	}
	ctx, cancel, err := s.Repo.Settings.WithOperationTimeout(ctx, "rollback")
	if err != nil {
		return RollbackResult{}, err
	}
	defer cancel()
	if err := s.ImportPendingExclusive(ctx, repo, h); err != nil {
		return RollbackResult{}, &fault.InvocationError{Operation: "rollback of", ID: s.ID, Err: err}
	}
	rolled, err := s.rollBackTo(ctx, repo, h, to, s.HasRollbackJournal())
	if err != nil && !fault.Is[*fault.UnfinishedTransitionError](err) {
		err = &fault.InvocationError{Operation: "rollback of", ID: s.ID, Err: err}
	}
	return rolled, err
}

// rollBackTo runs the transition to a snapshot.
func (s *Sandbox) rollBackTo(ctx context.Context, repo *git.Repo, h *Handle, to snapshots.Snapshot, resuming bool) (RollbackResult, error) {
	target, err := s.readTarget(ctx, repo, to)
	if err != nil {
		return RollbackResult{}, err
	}
	dropped, err := s.dropForeignOperation(ctx, repo, to, &target)
	if err != nil {
		return RollbackResult{}, err
	}
	done, err := s.runTransition(ctx, repo, h, transition{
		verb: "rollback", to: to, resuming: resuming, trustsConfig: s.Repo.TrustsRepoConfig(to.Invocation),
		sourceMessage: "agency: before the rollback to " + to.Name(), reflogMessage: "agency: rollback to " + to.Name(),
		chooseTarget: func(_ context.Context, from snapshot.State) (snapshot.State, error) {
			if from.SameContents(target) && !resuming {
				return snapshot.State{}, errAlreadyInState
			}
			return target, nil
		},
	})
	if errors.Is(err, errAlreadyInState) {
		return RollbackResult{Invocation: s.ID, Snapshot: to.ID, Name: to.Name(), Left: to.ID, LeftName: to.Name(), Already: true}, nil
	}
	if err != nil {
		return RollbackResult{}, err
	}
	if dropped {
		s.Repo.Warn("snapshot %s was taken during a merge, rebase or similar operation; the sandbox has its files and HEAD, but no operation in progress", to.Name())
	}
	s.Repo.AppendEvent(s.ID, rollbackEvent{s.Repo.EventTime(), "rollback", to.ID, to.Ref, done.source.ID, done.source.Ref})
	return RollbackResult{
		Invocation: s.ID, Snapshot: to.ID, Name: to.Name(), Left: done.source.ID, LeftName: done.source.Name(),
		Added: done.added, Changed: done.changed, Removed: done.removed, DetachedFrom: done.detachedFrom,
	}, nil
}

// dropForeignOperation removes an operation in progress from the state of a snapshot that another machine may have made: an agent there
// may have written what the snapshot says is of the real git directory. Here git would trust it, and run the commands of a rebase.
func (s *Sandbox) dropForeignOperation(ctx context.Context, repo *git.Repo, of snapshots.Snapshot, state *snapshot.State) (dropped bool, err error) {
	maker := s.Repo.Store.Invocation(s.Repo.ID, of.Invocation, nil)
	if state.OperationCommit == "" || maker.Defect == store.NoDefect && maker.Record.Primitives.IsLocal() {
		return false, nil
	}
	operation, err := snapshot.ReadOperation(ctx, repo, *state)
	if err != nil {
		return false, err
	}
	if dropped = len(operation.Files)+len(operation.HostFiles)+len(operation.Conflicts) > 0; dropped {
		state.OperationCommit = ""
	}
	return dropped, nil
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
func (s *Sandbox) readTarget(ctx context.Context, repo *git.Repo, to snapshots.Snapshot) (snapshot.State, error) {
	target, err := snapshot.ReadState(ctx, repo, to.ID)
	if err != nil {
		return snapshot.State{}, err
	}
	if target.HeadRef == core.SandboxRef(to.Invocation) || target.HeadRef == "" {
		target.HeadRef = core.SandboxRef(s.ID)
	}
	names := []string{target.Head + "^{commit}", target.BranchTip + "^{commit}"}
	if target.IndexTree != "" {
		names = append(names, target.IndexTree+"^{tree}")
	}
	if target.OperationCommit != "" {
		names = append(names, target.OperationCommit+"^{commit}")
	}
	found, err := repo.Lookup(ctx, names...)
	if err != nil {
		return snapshot.State{}, err
	}
	for i, o := range found {
		if o.Missing() {
			oid, kind, _ := strings.Cut(strings.TrimSuffix(names[i], "}"), "^{")
			return snapshot.State{}, fmt.Errorf("snapshot %s is incomplete: %w", to.Name(), &object.IncompleteError{OID: oid, Want: kind})
		}
	}
	return target, nil
}
