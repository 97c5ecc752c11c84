package gitagency

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// DefersCleanup returns agency.autoDetach: whether landed sandboxes may be removed in the background.
func (r *Repository) DefersCleanup() (bool, error) { return r.boolSetting(autoDetachKey, true) }

// CleanUpInBackground starts this program again as a detached process with the same environment, to remove the sandboxes
// that landings with LandRequest.DeferCleanup have left. argv[0] is the program name. The process runs in the caller's
// directory, or in the git common directory if the caller's directory was a sandbox that has landed.
func (r *Repository) CleanUpInBackground(argv []string) error {
	dir := r.opts.Dir
	if r.WorkDirGone() {
		dir = r.CommonDir
	}
	return proc.DetachSelf(proc.Command{Argv: argv, Dir: dir, Env: r.opts.Env})
}

// WorkDirGone reports whether the caller's directory no longer exists, as after landing the sandbox that contains it.
func (r *Repository) WorkDirGone() bool { return !store.IsDir(r.opts.Dir) }

// moveTreeAside renames the tree of a landed sandbox, so that processes that know its path no longer find it.
func moveTreeAside(tree string) error {
	if _, there := store.FirstExisting(store.WithdrawnPath(tree)); there || !store.IsDir(tree) {
		return nil
	}
	return os.Rename(tree, store.WithdrawnPath(tree))
}

// removeLandedTree removes the tree of a landed sandbox. That can take longer than the landing itself, so it runs without
// the repository lock. It takes the lock only if files were written after the landing's scan: they go to the trash first.
func (r *Repository) removeLandedTree(ctx context.Context, id string) error {
	around := r.store.SandboxDir(r.ID, id)
	held, err := lock.AcquireDirExclusive(ctx, around, 0)
	if errors.Is(err, fs.ErrNotExist) || is[*LockTimeoutError](err) {
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
	tree := r.store.SandboxTreePath(r.ID, id)
	entry := r.store.Invocation(r.ID, id, nil)
	late := store.IsDir(tree)
	if aside := store.WithdrawnPath(tree); store.IsDir(aside) && !late {
		if late, err = modifiedSince(aside, timeOrZero(entry.Record.CheckedAt)); err != nil {
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
		return r.removeLandedTreeLocked(ctx, id)
	}
	// The sandbox directory goes last: as long as it exists, the next cleanup also removes the other parts.
	if err := errors.Join(worktreeBackend(r.git).FinishUnregister(r.sandboxSpec(id)), durable.RemoveTree(store.RemovablePath(tree))); err != nil {
		return err
	}
	return r.store.RemoveSandboxTree(r.ID, id)
}

// removeLandedTreeLocked removes a landed sandbox under the repository lock, and keeps late changes in the trash.
func (r *Repository) removeLandedTreeLocked(ctx context.Context, id string) error {
	repo, unlock, err := r.lockAndRecover(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return r.cleanUpLanded(ctx, repo, id)
}

// cleanUpLanded removes all remaining parts of a landed sandbox.
func (r *Repository) cleanUpLanded(ctx context.Context, repo *git.Repo, id string) error {
	entry := r.store.Invocation(r.ID, id, nil)
	// A killed process may have left nothing but git's worktree entry.
	if _, left := store.FirstExisting(r.store.SandboxDir(r.ID, id), repo.AdminDir(id)); !left || entry.Defect != store.NoDefect || entry.Record.Landing != store.Landed {
		return nil
	}
	_, err := r.endInvocation(ctx, repo, entry)
	return err
}

// leftoverScratch lists the scratch directories that killed processes left in the repository, except those that go with a
// landed sandbox.
func (r *Repository) leftoverScratch(repo *git.Repo) ([]string, error) {
	scraps, err := repo.Leftovers()
	return slices.DeleteFunc(scraps, func(path string) bool {
		id := trailingID(path)
		if id == "" || path != repo.UnregisteredDir(id) || !store.IsDir(r.store.SandboxDir(r.ID, id)) {
			return false
		}
		return r.store.Invocation(r.ID, id, nil).Record.Landing == store.Landed
	}), err
}

// isBeingRemoved reports whether another process is removing the rest of a sandbox now.
func (r *Repository) isBeingRemoved(id string) bool {
	held, err := lock.AcquireDirShared(context.Background(), r.store.SandboxDir(r.ID, id), 0)
	if err == nil {
		_ = held.Close()
	}
	return is[*LockTimeoutError](err)
}
