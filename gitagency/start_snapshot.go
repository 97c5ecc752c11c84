package gitagency

import (
	"cmp"
	"context"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// snapshotStartPoint returns the start point for a snapshot; without a snapshot it is empty. The base is that of the
// snapshot, the branch starts at the snapshot's HEAD, and its changed, staged and untracked files are so again.
func (r *Repository) snapshotStartPoint(ctx context.Context, query string) (startPoint, error) {
	if query == "" {
		return startPoint{}, nil
	}
	snap, err := r.findSnapshot(ctx, r.git, query)
	if err != nil {
		return startPoint{}, err
	}
	state, err := snapshot.ReadState(ctx, r.git, snap.ID)
	if err != nil {
		return startPoint{}, fmt.Errorf("snapshot %s: %w", snap.name(), err)
	}
	var record store.InvocationMeta
	if ids.Valid(snap.Invocation) { // it comes from a ref and is used in a path
		record = r.store.Invocation(r.ID, snap.Invocation, nil).Record
	}
	if state.Head == "" {
		return startPoint{}, &NoCommitError{Name: "HEAD of snapshot " + snap.name()}
	}
	if state.OperationCommit != "" {
		r.warn("snapshot %s was taken while a merge, a rebase or the like was under way; the sandbox has the files and HEAD of then, but nothing is under way in it", snap.name())
	}
	from := startPoint{
		base: cmp.Or(state.Base, record.BaseCommit, state.Head), snapshot: snap.ID, head: state.Head, index: state.IndexTree,
		untrustedConfig: !r.trustsRepoConfig(snap.Invocation),
	}
	if id := record.IntegrationWorktreeID; ids.Valid(id) {
		if wt := r.worktreeFromEntry(r.store.Worktree(r.ID, id, nil)); wt.checkUsable() == nil {
			from.worktreeID = id
		}
	}
	return from, nil
}
