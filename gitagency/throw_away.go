package gitagency

import (
	"context"
	"errors"
	"io/fs"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// removeTemporarySandbox removes a sandbox and everything that belongs to it, its record last. If it is interrupted,
// the invocation is recorded as discarded, and can be removed like any other.
func (r *Repository) throwAway(ctx context.Context, repo *git.Repo, id string) error {
	spec := r.sandboxSpec(id)
	if _, there := store.Taken(spec.Scratch, r.store.SandboxDir(r.ID, id)); !there {
		return nil // removed by another process
	}
	if err := removable(spec.Tree); err != nil {
		return err
	}
	locked, err := r.vacate(ctx, id)
	if err != nil {
		return err
	}
	defer locked.close()
	kept := Pruned{ID: id, TrashRef: trashRef(id)} // refs that other commands may have made for it
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

// deleteTemporaryBranch deletes the branch of a sandbox, wherever it points, unless another worktree has it checked
// out.
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

// isAbandonedVerification reports whether the sandbox of an invocation exists only to verify a landing and the
// process that did so is gone. The caller holds the repository lock: otherwise the sandbox may be in creation or
// removal.
func (r *Repository) abandoned(e store.Entry[store.InvocationMeta]) bool {
	if e.Broken != store.Whole || e.Record.Verifies == "" || ended(e.Record) {
		return false
	}
	held, err := lock.Clear(context.Background(), r.store.VerifyingDir(r.ID, e.ID), 0)
	if err == nil {
		_ = held.Close()
	}
	return err == nil || errors.Is(err, fs.ErrNotExist) // killed before it took its lock
}

// discardAbandoned discards the sandbox of an abandoned verification. It keeps the content, because someone may have
// worked in it since.
func (r *Repository) endAbandoned(ctx context.Context, repo *git.Repo, e store.Entry[store.InvocationMeta]) (Discarded, error) {
	d, err := r.end(ctx, repo, e)
	if err != nil {
		return d, err
	}
	return d, durable.RemoveTree(r.store.VerifyingDir(r.ID, e.ID))
}

// findAbandonedVerification reports a sandbox whose verification was killed.
func (x *examination) verifications(s subject, e store.Entry[store.InvocationMeta]) {
	if x.unsettled || !x.abandoned(e) {
		return
	}
	x.found(Finding{Code: "interrupted-verify", ID: s.id, Path: s.tree, What: "somebody was killed while the landing of " + e.Record.Verifies + " was verified in it"},
		func(ctx context.Context) error {
			_, err := x.endAbandoned(ctx, x.repo, e)
			return err
		})
}
