package gitagency

import (
	"context"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// snapshotSeries is the numbered series of snapshots of one tree: of a sandbox, or of a directory.
type snapshotSeries struct {
	repo     *Repository
	id       string                                // directory of their refs below the snapshot refs
	treeName string                                // name of the tree in messages
	subject  func(message string) git.WorktreeSpec // description of the tree's current state
}

// take is the transaction. Before the ref is created it only writes objects, which nothing refers to.
func (h snapshotSeries) take(ctx context.Context, repo *git.Repo, req SnapshotRequest) (_ Snapshot, err error) {
	tx := h.repo.beginTx("snapshot")
	defer func() {
		if err != nil {
			rollbackTx(ctx, tx)
		}
	}()
	snapshot, err := h.takeSteps(ctx, tx, repo, req, nil)
	if err != nil {
		return Snapshot{}, err
	}
	tx.Commit()
	return snapshot, nil
}

// takeSteps runs the steps of a snapshot in tx, which may continue after them. also, which may be nil, is given the
// commit and returns paths that must be captured in addition.
func (h snapshotSeries) takeSteps(ctx context.Context, tx *undo.Tx, repo *git.Repo, req SnapshotRequest, also func(commit string) ([]string, error)) (Snapshot, error) {
	last, err := h.latest(ctx, repo)
	if err != nil {
		return Snapshot{}, err
	}
	snap := Snapshot{Invocation: h.id, Number: last.Number + 1, Created: true}
	snap.Ref = snapshotRef(h.id, snap.Number)
	message := req.Message
	if message == "" {
		message = fmt.Sprintf("agency: snapshot %d of %s", snap.Number, h.treeName)
	}
	secrets := h.repo.SecretPatterns()
	if req.IncludeSecrets {
		secrets = nil
	}
	var made []string
	// 1. Capture the state as a commit that no ref points at yet.
	if err := tx.Step(ctx, "capture", func() error {
		state, err := h.repo.prepareCapture(h.subject(message))
		if err != nil {
			return err
		}
		state.IncludeIgnored, state.SecretPatterns = req.IncludeIgnored, secrets
		frozen, err := snapshot.CaptureState(ctx, repo, state, last.ID)
		if err == nil && also != nil {
			if state.ForcedPaths, err = also(frozen.Commit); err == nil && len(state.ForcedPaths) > 0 {
				frozen, err = snapshot.CaptureState(ctx, repo, state, last.ID)
			}
		}
		snap.ID, snap.LeftOut, made = frozen.Commit, toLeftOut(frozen.LeftOut), frozen.Objects
		return err
	}); err != nil {
		return Snapshot{}, err
	}
	if snap.ID == last.ID {
		last.LeftOut = snap.LeftOut
		return last, nil
	}
	// 2. Commit point: create the ref.
	if err := tx.Step(ctx, "ref", func() error { return keepSnapshot(ctx, tx, repo, snap, made...) }); err != nil {
		return Snapshot{}, err
	}
	return snap, nil
}

// keepSnapshot creates the ref of a snapshot and checks that the objects that were written for it still exist.
func keepSnapshot(ctx context.Context, tx *undo.Tx, repo *git.Repo, snapshot Snapshot, made ...string) error {
	if err := repo.RemoveRefLeftovers(ctx, snapshot.Ref); err != nil { // left by a killed attempt
		return err
	}
	err := repo.CreateRef(ctx, snapshot.Ref, snapshot.ID, "agency: snapshot")
	if !git.ChangedNothing(err) { // a ref that git refused to create belongs to another process
		tx.Undo("ref", func(ctx context.Context) error { return repo.DeleteOwnedRef(ctx, snapshot.Ref, snapshot.ID) })
	}
	if err != nil {
		return err
	}
	if err := repo.CheckObjectsExist(ctx, made...); err != nil {
		return err
	}
	return repo.SyncRef(snapshot.Ref) // must be durable before the caller gets its name
}

// latest returns the snapshot with the highest number; the number is 0 when there is none.
func (h snapshotSeries) latest(ctx context.Context, repo *git.Repo) (Snapshot, error) {
	if n, ok := repo.LastNumberedRef(snapshotsPrefix(h.id)); ok { // without reading all refs
		commit, err := repo.Tip(ctx, snapshotRef(h.id, n))
		if err != nil || commit != "" {
			return Snapshot{Invocation: h.id, ID: commit, Ref: snapshotRef(h.id, n), Number: n}, err
		}
	}
	all, err := listSnapshots(ctx, repo, h.id)
	if err != nil || len(all) == 0 {
		return Snapshot{Invocation: h.id}, err
	}
	return all[len(all)-1], nil
}
