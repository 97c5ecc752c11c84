package landing

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// moveTreeAside renames the tree of a landed sandbox, so that processes that know its path no longer find it.
func moveTreeAside(tree string) error {
	if _, there := store.FirstExisting(store.WithdrawnPath(tree)); there || !store.IsDir(tree) {
		return nil
	}
	return os.Rename(tree, store.WithdrawnPath(tree))
}

// removeLandedTree removes the tree of a landed sandbox. That can take longer than the landing itself, so it runs without
// the repository lock. It takes the lock only if files were written after the landing's scan: they go to the trash first.
func removeLandedTree(ctx context.Context, r *core.Repository, id string) error {
	around := r.Store.SandboxDir(r.ID, id)
	held, err := lock.AcquireDirExclusive(ctx, around, 0)
	if errors.Is(err, fs.ErrNotExist) || fault.Is[*fault.LockTimeoutError](err) {
		return nil // already removed, or another process is removing it
	}
	if err != nil {
		return err
	}
	defer func() {
		if held != nil {
			_ = held.Close()
		}
	}()
	tree := r.Store.SandboxTreePath(r.ID, id)
	entry := r.Store.Invocation(r.ID, id, nil)
	late := store.IsDir(tree)
	if aside := store.WithdrawnPath(tree); store.IsDir(aside) && !late {
		if late, err = core.ModifiedSince(aside, core.TimeOrZero(entry.Record.CheckedAt)); err != nil {
			return err
		}
		if !late {
			if err := errors.Join(durable.RemoveTree(store.RemovablePath(tree)), os.Rename(aside, store.RemovablePath(tree))); err != nil {
				return err
			}
		}
	}
	if late {
		_ = held.Close() // the holder of the repository lock may wait for this lock
		held = nil
		return removeLandedTreeLocked(ctx, r, id)
	}
	// The sandbox directory goes last: as long as it exists, the next cleanup also removes the other parts.
	if err := errors.Join(core.WorktreeBackend(r.Git).FinishUnregister(sandbox.Spec(r, id)), durable.RemoveTree(store.RemovablePath(tree))); err != nil {
		return err
	}
	return r.Store.RemoveSandboxTree(r.ID, id)
}

// removeLandedTreeLocked removes a landed sandbox under the repository lock, and keeps late changes in the trash.
func removeLandedTreeLocked(ctx context.Context, r *core.Repository, id string) error {
	repo, unlock, err := r.LockAndRecover(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return cleanUpLanded(ctx, r, repo, id)
}

// cleanUpLanded removes all remaining parts of a landed sandbox.
func cleanUpLanded(ctx context.Context, r *core.Repository, repo *git.Repo, id string) error {
	entry := r.Store.Invocation(r.ID, id, nil)
	// A killed process may have left nothing but git's worktree entry.
	if _, left := store.FirstExisting(r.Store.SandboxDir(r.ID, id), repo.AdminDir(id)); !left || entry.Defect != store.NoDefect || entry.Record.Landing != store.Landed {
		return nil
	}
	_, err := sandbox.EndInvocation(ctx, r, repo, entry)
	return err
}

// LeftoverScratch lists the scratch directories that killed processes left in the repository, except those that go with a
// landed sandbox.
func LeftoverScratch(r *core.Repository, repo *git.Repo) ([]string, error) {
	scraps, err := repo.Leftovers()
	return slices.DeleteFunc(scraps, func(path string) bool {
		id := ids.Trailing(path)
		if id == "" || path != repo.UnregisteredDir(id) || !store.IsDir(r.Store.SandboxDir(r.ID, id)) {
			return false
		}
		return r.Store.Invocation(r.ID, id, nil).Record.Landing == store.Landed
	}), err
}

// IsBeingRemoved reports whether another process is removing the rest of a sandbox now.
func IsBeingRemoved(r *core.Repository, id string) bool {
	held, err := lock.AcquireDirShared(context.Background(), r.Store.SandboxDir(r.ID, id), 0)
	if err == nil {
		_ = held.Close()
	}
	return fault.Is[*fault.LockTimeoutError](err)
}
