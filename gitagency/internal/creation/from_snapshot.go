package creation

import (
	"cmp"
	"context"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// snapshotStartPoint returns the start point for a snapshot; without a snapshot it is empty. The base is that of the
// snapshot, the branch starts at the snapshot's HEAD, and its changed, staged and untracked files are so again.
func snapshotStartPoint(ctx context.Context, r *core.Repository, query string) (StartPoint, error) {
	if query == "" {
		return StartPoint{}, nil
	}
	snap, err := snapshots.Find(ctx, r, r.Git, query)
	if err != nil {
		return StartPoint{}, err
	}
	state, err := snapshot.ReadState(ctx, r.Git, snap.ID)
	if err != nil {
		return StartPoint{}, fmt.Errorf("snapshot %s: %w", snap.Name(), err)
	}
	var record store.InvocationMeta
	if ids.Valid(snap.Invocation) { // it comes from a ref and is used in a path
		record = r.Store.Invocation(r.ID, snap.Invocation, nil).Record
	}
	if state.Head == "" {
		return StartPoint{}, &fault.NoCommitError{Name: "HEAD of snapshot " + snap.Name()}
	}
	if state.OperationCommit != "" {
		r.Warn("snapshot %s was taken during a merge, rebase or similar operation; the sandbox has its files and HEAD, but no operation in progress", snap.Name())
	}
	from := StartPoint{
		Base: cmp.Or(state.Base, record.BaseCommit, state.Head), Snapshot: snap.ID, Head: state.Head, index: state.IndexTree,
		UntrustedConfig: !r.TrustsRepoConfig(snap.Invocation),
	}
	if id := record.IntegrationWorktreeID; ids.Valid(id) {
		if wt := r.WorktreeFromEntry(r.Store.Worktree(r.ID, id, nil)); wt.CheckUsable() == nil {
			from.worktreeID, from.branch = id, core.IntegrationBranch(record, wt.Entry.Record)
		}
	}
	return from, nil
}
