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
func (r *Repository) removeTemporarySandbox(ctx context.Context, repo *git.Repo, id string) error {
	spec := r.sandboxSpec(id)
	if _, there := store.FirstExisting(spec.Scratch, r.store.SandboxDir(r.ID, id)); !there {
		return nil // removed by another process
	}
	if err := checkRemovable(spec.Tree); err != nil {
		return err
	}
	locked, err := r.lockExclusive(ctx, id)
	if err != nil {
		return err
	}
	defer locked.close()
	kept := PruneResult{ID: id, TrashRef: trashRef(id)} // refs that other commands may have made for it
	if kept.keptCommit, err = r.trashCommit(ctx, repo, id); err != nil {
		return err
	}
	refs, err := repo.Refs(ctx, snapshotsPrefix(id))
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
		{"registration", func() error { return worktreeBackend(repo).Unregister(spec) }},
		{"branch", func() error { return r.deleteTemporaryBranch(ctx, repo, id) }},
		{"sandbox-dir", func() error { return r.store.RemoveSandboxTree(r.ID, id) }},
	}
	steps = append(steps, r.deleteRefSteps(ctx, repo, &kept)...)
	return r.runSteps(ctx, "throw-away", append(steps, step{"record", func() error { return r.store.RemoveInvocation(r.ID, id) }}))
}

// deleteTemporaryBranch deletes the branch of a sandbox, wherever it points, unless another worktree has it checked
// out.
func (r *Repository) deleteTemporaryBranch(ctx context.Context, repo *git.Repo, id string) error {
	spec := r.sandboxSpec(id)
	found, err := repo.Lookup(ctx, spec.Branch)
	if err != nil {
		return err
	}
	if found[0].Missing() {
		return repo.RemoveRefLeftovers(ctx, spec.Branch)
	}
	listing, err := repo.Worktrees(ctx)
	if err != nil {
		return err
	}
	if at := checkedOutElsewhere(listing.Worktrees, spec); at != "" {
		r.warn("branch %s is checked out at %s; it stays", shortBranch(spec.Branch), at)
		return nil
	}
	return worktreeBackend(repo).DeleteBranch(ctx, spec, found[0].OID)
}

// isAbandonedVerification reports whether the sandbox of an invocation exists only to verify a landing and the
// process that did so is gone. The caller holds the repository lock: otherwise the sandbox may be in creation or
// removal.
func (r *Repository) isAbandonedVerification(e store.Entry[store.InvocationMeta]) bool {
	if e.Defect != store.NoDefect || e.Record.VerifiesInvocation == "" || hasEnded(e.Record) {
		return false
	}
	held, err := lock.AcquireDirExclusive(context.Background(), r.store.VerifyLockDir(r.ID, e.ID), 0)
	if err == nil {
		_ = held.Close()
	}
	return err == nil || errors.Is(err, fs.ErrNotExist) // killed before it took its lock
}

// discardAbandoned discards the sandbox of an abandoned verification. It keeps the content, because files may
// have been written to it since.
func (r *Repository) discardAbandoned(ctx context.Context, repo *git.Repo, e store.Entry[store.InvocationMeta]) (DiscardResult, error) {
	d, err := r.endInvocation(ctx, repo, e)
	if err != nil {
		return d, err
	}
	return d, durable.RemoveTree(r.store.VerifyLockDir(r.ID, e.ID))
}

// findAbandonedVerification reports a sandbox whose verification was killed.
func (x *checkRun) findAbandonedVerification(s treeInfo, e store.Entry[store.InvocationMeta]) {
	if x.changing || !x.isAbandonedVerification(e) {
		return
	}
	x.addFinding(Finding{Code: "interrupted-verify", ID: s.id, Path: s.tree, Problem: "somebody was killed while the landing of " + e.Record.VerifiesInvocation + " was verified in it"},
		func(ctx context.Context) error {
			_, err := x.discardAbandoned(ctx, x.repo, e)
			return err
		})
}
