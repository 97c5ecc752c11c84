package gitagency

import (
	"cmp"
	"context"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// snapshotStartPoint returns the start point for a snapshot; without a snapshot it is empty. The base is that of the
// snapshot, the branch starts at the snapshot's HEAD, and its changed, staged and untracked files are so again.
func (r *Repository) origin(ctx context.Context, query string) (beginning, error) {
	if query == "" {
		return beginning{}, nil
	}
	snapshot, err := r.snapshotNamed(ctx, r.git, query)
	if err != nil {
		return beginning{}, err
	}
	state, err := r.git.ReadState(ctx, snapshot.ID)
	if err != nil {
		return beginning{}, fmt.Errorf("snapshot %s: %w", snapshot.name(), err)
	}
	var record store.InvocationMeta
	if ids.Valid(snapshot.Invocation) { // it comes from a ref and is used in a path
		record = r.store.Invocation(r.ID, snapshot.Invocation, nil).Record
	}
	if state.Head == "" {
		return beginning{}, &NoCommitError{Name: "HEAD of snapshot " + snapshot.name()}
	}
	if state.Held != "" {
		r.warn("snapshot %s was taken while a merge, a rebase or the like was under way; the sandbox has the files and HEAD of then, but nothing is under way in it", snapshot.name())
	}
	from := beginning{
		base: cmp.Or(state.Base, record.BaseCommit, state.Head), snapshot: snapshot.ID, tip: state.Head, index: state.Index,
		distrust: !r.trustsSettings(snapshot.Invocation),
	}
	if id := record.IntegrationWorktreeID; ids.Valid(id) {
		if wt := r.worktree(r.store.Worktree(r.ID, id, nil)); wt.usable() == nil {
			from.worktree = id
		}
	}
	return from, nil
}
