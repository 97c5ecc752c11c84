package gitagency

import (
	"context"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// history is the line of snapshots of one tree: of a sandbox, or of a directory.
type history struct {
	repo    *Repository
	id      string                           // their refs lie below it
	of      string                           // the tree, as messages call it
	subject func(message string) git.Subject // what belongs to the state of the tree
}

// take is the transaction. Until the ref is there nothing has happened but that some objects were written,
// which nobody can see.
func (h history) take(ctx context.Context, repo *git.Repo, req SnapshotRequest) (_ Snapshot, err error) {
	tx := h.repo.begin("snapshot")
	defer func() {
		if err != nil {
			rollback(ctx, tx)
		}
	}()
	snapshot, err := h.taken(ctx, tx, repo, req, nil)
	if err != nil {
		return Snapshot{}, err
	}
	tx.Commit()
	return snapshot, nil
}

// taken are the steps by which a snapshot comes to be, in a transaction of which they may be only the beginning. also,
// which may be nil, says of the commit what else has to be in it.
func (h history) taken(ctx context.Context, tx *undo.Tx, repo *git.Repo, req SnapshotRequest, also func(commit string) ([]string, error)) (Snapshot, error) {
	last, err := h.last(ctx, repo)
	if err != nil {
		return Snapshot{}, err
	}
	snapshot := Snapshot{Invocation: h.id, Number: last.Number + 1, Created: true}
	snapshot.Ref = snapshotRef(h.id, snapshot.Number)
	message := req.Message
	if message == "" {
		message = fmt.Sprintf("agency: snapshot %d of %s", snapshot.Number, h.of)
	}
	secrets := h.repo.SecretPatterns()
	if req.Secrets {
		secrets = nil
	}
	var made []string
	// 1. What is there, as a commit nobody points at yet.
	if err := tx.Step(ctx, "capture", func() error {
		state, err := h.repo.capturable(h.subject(message))
		if err != nil {
			return err
		}
		state.Ignored, state.Secrets = req.Ignored, secrets
		frozen, err := repo.Freeze(ctx, state, last.ID)
		if err == nil && also != nil {
			if state.Also, err = also(frozen.Commit); err == nil && len(state.Also) > 0 {
				frozen, err = repo.Freeze(ctx, state, last.ID)
			}
		}
		snapshot.ID, snapshot.LeftOut, made = frozen.Commit, leftOut(frozen.LeftOut), frozen.Made
		return err
	}); err != nil {
		return Snapshot{}, err
	}
	if snapshot.ID == last.ID {
		last.LeftOut = snapshot.LeftOut
		return last, nil
	}
	// 2. The commit point: the ref that keeps it.
	if err := tx.Step(ctx, "ref", func() error { return keepSnapshot(ctx, tx, repo, snapshot, made...) }); err != nil {
		return Snapshot{}, err
	}
	return snapshot, nil
}

// keepSnapshot makes the ref of a snapshot, for which some objects were made.
func keepSnapshot(ctx context.Context, tx *undo.Tx, repo *git.Repo, snapshot Snapshot, made ...string) error {
	if err := repo.SweepRef(ctx, snapshot.Ref); err != nil { // of an attempt that was killed
		return err
	}
	err := repo.CreateRef(ctx, snapshot.Ref, snapshot.ID, "agency: snapshot")
	if !git.Refused(err) { // what git refused to make is somebody else's, and stays
		tx.Undo("ref", func(ctx context.Context) error { return repo.RemoveRef(ctx, snapshot.Ref, snapshot.ID) })
	}
	if err != nil {
		return err
	}
	if err := repo.Still(ctx, made...); err != nil {
		return err
	}
	return repo.SyncRef(snapshot.Ref) // somebody may rely on it as soon as he has its name
}

// last is the snapshot with the highest number; its number is 0 when there is none.
func (h history) last(ctx context.Context, repo *git.Repo) (Snapshot, error) {
	if n, ok := repo.LastNumbered(snapshotRefs(h.id)); ok { // without reading all that came before it
		commit, err := repo.Tip(ctx, snapshotRef(h.id, n))
		if err != nil || commit != "" {
			return Snapshot{Invocation: h.id, ID: commit, Ref: snapshotRef(h.id, n), Number: n}, err
		}
	}
	all, err := snapshots(ctx, repo, h.id)
	if err != nil || len(all) == 0 {
		return Snapshot{Invocation: h.id}, err
	}
	return all[len(all)-1], nil
}
