package gitagency

import (
	"cmp"
	"context"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// origin says what a sandbox that is to be in the state of a snapshot begins with: nothing without one. The
// snapshot has its own base, and the branch begins where HEAD was; what was changed, staged or untracked then is so
// again.
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
	if ids.Valid(snapshot.Invocation) { // it is a word in a ref, and becomes a path
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
