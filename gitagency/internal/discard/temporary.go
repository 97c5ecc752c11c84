package discard

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// RemoveTemporary removes a sandbox and everything that belongs to it, its record last. If it is interrupted,
// the invocation is recorded as discarded, and can be removed like any other.
func RemoveTemporary(ctx context.Context, r *core.Repository, repo *git.Repo, id string) error {
	spec := sandbox.Spec(r, id)
	if _, there := store.FirstExisting(spec.Scratch, r.Store.SandboxDir(r.ID, id)); !there {
		return nil // removed by another process
	}
	if err := CheckRemovable(spec.Tree); err != nil {
		return err
	}
	locked, err := sandbox.LockExclusive(ctx, r, id)
	if err != nil {
		return err
	}
	defer locked.Close()
	kept, err := r.TrashCommit(ctx, repo, id) // other commands may have made these refs for it
	if err != nil {
		return err
	}
	snapshots, err := repo.Refs(ctx, core.SnapshotsPrefix(id))
	if err != nil {
		return err
	}
	steps := []core.Step{
		{Name: "end", Do: func() error {
			return r.Store.UpdateInvocationMeta(r.ID, id, func(m *store.InvocationMeta) {
				now := r.Now()
				m.Landing, m.FinishedAt = store.Discarded, &now
			})
		}},
		{Name: "tree", Do: func() error { return durable.RemoveTree(spec.Tree) }},
		{Name: "registration", Do: func() error { return core.WorktreeBackend(repo).Unregister(spec) }},
		{Name: "branch", Do: func() error { return deleteTemporaryBranch(ctx, r, repo, id) }},
		{Name: "sandbox-dir", Do: func() error { return r.Store.RemoveSandboxTree(r.ID, id) }},
	}
	steps = append(steps, r.DeleteTrashSteps(ctx, repo, id, snapshots, kept)...)
	return r.RunSteps(ctx, "throw-away", append(steps, core.Step{Name: "record", Do: func() error { return r.Store.RemoveInvocation(r.ID, id) }}))
}

// deleteTemporaryBranch deletes the branch of a sandbox, wherever it points, unless another worktree has it checked
// out.
func deleteTemporaryBranch(ctx context.Context, r *core.Repository, repo *git.Repo, id string) error {
	spec := sandbox.Spec(r, id)
	if err := core.Unpin(ctx, repo, id); err != nil {
		return err
	}
	found, err := repo.Lookup(ctx, spec.Branch)
	if err != nil {
		return err
	}
	if found[0].Missing() {
		return repo.RemoveRefLeftovers(ctx, spec.Branch)
	}
	listing, err := worktree.List(ctx, repo)
	if err != nil {
		return err
	}
	if at := CheckedOutElsewhere(listing.Worktrees, spec); at != "" {
		r.Warn("branch %s is checked out at %s; it stays", core.ShortBranch(spec.Branch), at)
		return nil
	}
	return core.WorktreeBackend(repo).DeleteBranch(ctx, spec, found[0].OID)
}

// IsAbandonedVerification reports whether the sandbox of an invocation exists only to verify a landing and the
// process that did so is gone. The caller holds the repository lock: otherwise the sandbox may be in creation or
// removal.
func IsAbandonedVerification(r *core.Repository, e store.Entry[store.InvocationMeta]) bool {
	if e.Defect != store.NoDefect || e.Record.VerifiesInvocation == "" || e.Record.HasEnded() {
		return false
	}
	held, err := lock.AcquireDirExclusive(context.Background(), r.Store.VerifyLockDir(r.ID, e.ID), 0)
	if err == nil {
		_ = held.Close()
	}
	return err == nil || errors.Is(err, fs.ErrNotExist) // killed before it took its lock
}

// EndAbandoned discards the sandbox of an abandoned verification. It keeps the content, because files may
// have been written to it since.
func EndAbandoned(ctx context.Context, r *core.Repository, repo *git.Repo, e store.Entry[store.InvocationMeta], o core.TrashOptions) (Result, error) {
	d, err := End(ctx, r, repo, e, o)
	if err != nil {
		return d, err
	}
	return d, durable.RemoveTree(r.Store.VerifyLockDir(r.ID, e.ID))
}

// CheckRemovable refuses a tree if something is mounted in its directory, or if its path leads through a symlink.
func CheckRemovable(tree string) error {
	if points := guard.MountsBelow(filepath.Dir(tree)); len(points) > 0 {
		return &fault.UnsafePathError{Path: tree, Why: "something is mounted at " + points[0] + "; unmount it first"}
	}
	return core.CheckParentResolved(tree)
}
