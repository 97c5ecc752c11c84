package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// throwAway removes a sandbox and everything that is left of it, its record last. Who holds the repository lock finds what
// an interrupted one leaves to have been discarded, and can take it away as any other.
func (r *Repository) throwAway(ctx context.Context, repo *git.Repo, id string) error {
	spec := r.sandboxSpec(id)
	if _, there := store.Taken(spec.Scratch, r.store.SandboxDir(r.ID, id)); !there {
		return nil // somebody was faster
	}
	if err := removable(spec.Tree); err != nil {
		return err
	}
	vacant, err := r.vacate(ctx, id)
	if err != nil {
		return err
	}
	defer vacant.close()
	kept := Pruned{ID: id, TrashRef: trashRef(id)} // should somebody have kept anything of it
	if kept.kept, err = r.kept(ctx, repo, id); err != nil {
		return err
	}
	refs, err := repo.Refs(ctx, snapshotRefs(id))
	if err != nil {
		return err
	}
	for ref, commit := range refs {
		kept.Snapshots = append(kept.Snapshots, PrunedSnapshot{ref, commit})
	}
	steps := []step{
		{"end", func() error {
			return r.store.UpdateInvocationMeta(r.ID, id, func(m *store.InvocationMeta) {
				now := r.now()
				m.Landing, m.FinishedAt = store.Discarded, &now
			})
		}},
		{"tree", func() error { return durable.RemoveTree(spec.Tree) }},
		{"registration", func() error { return backend(repo).Unregister(spec) }},
		{"branch", func() error { return r.dropSandboxBranch(ctx, repo, id) }},
		{"sandbox-dir", func() error { return r.store.RemoveSandboxTree(r.ID, id) }},
	}
	steps = append(steps, r.forgetting(ctx, repo, &kept)...)
	return r.forward(ctx, "throw-away", append(steps, step{"record", func() error { return r.store.RemoveInvocation(r.ID, id) }}))
}

// dropSandboxBranch deletes the branch of a sandbox, wherever it is, unless somebody has it checked out.
func (r *Repository) dropSandboxBranch(ctx context.Context, repo *git.Repo, id string) error {
	spec := r.sandboxSpec(id)
	found, err := repo.Lookup(ctx, spec.Branch)
	if err != nil {
		return err
	}
	if found[0].Missing() {
		return repo.SweepRef(ctx, spec.Branch)
	}
	listing, err := repo.Worktrees(ctx)
	if err != nil {
		return err
	}
	if at := elsewhere(listing.Worktrees, spec); at != "" {
		r.warn("branch %s is checked out at %s; it stays", short(spec.Branch), at)
		return nil
	}
	return backend(repo).DeleteBranch(ctx, spec, found[0].OID)
}
