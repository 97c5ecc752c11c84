package discard

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/pathset"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// MoveTreeAside renames the tree of a sandbox that has ended, so that processes that know its path no longer find it.
func MoveTreeAside(tree string) error {
	if _, there := store.FirstExisting(store.WithdrawnPath(tree)); there || !store.IsDir(tree) {
		return nil
	}
	return os.Rename(tree, store.WithdrawnPath(tree))
}

// MarkCleanup marks this process, and each that inherits the returned file, as one that removes ended sandboxes without
// the repository lock: until all of them have closed it, doctor and prune leave the remains of ended sandboxes alone.
// While doctor or prune works it waits up to timeout, and then returns a *LockTimeoutError. A caller that holds the
// repository lock must not wait.
func MarkCleanup(ctx context.Context, r *core.Repository, timeout time.Duration) (*os.File, error) {
	return lock.AcquireDirShared(ctx, r.Store.SandboxesDir(r.ID), timeout)
}

// BlockCleanup keeps every process from removing ended sandboxes without the repository lock, until release is called.
// running reports that a process still does so after timeout; then nothing is blocked.
func BlockCleanup(ctx context.Context, r *core.Repository, timeout time.Duration) (release func(), running bool, err error) {
	held, err := lock.AcquireDirExclusive(ctx, r.Store.SandboxesDir(r.ID), timeout)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission): // no sandboxes, or nothing that we could remove
		return func() {}, false, nil
	case fault.Is[*fault.LockTimeoutError](err):
		return func() {}, true, nil
	case err != nil:
		return func() {}, false, err
	}
	return func() { _ = held.Close() }, false, nil
}

// RemoveEndedTree removes the tree of a sandbox that has ended. That can take longer than its landing or discard, so it
// runs without the repository lock. It takes the lock only if files were written after the last scan: they go to the
// trash first.
func RemoveEndedTree(ctx context.Context, r *core.Repository, id string) error {
	return removeEndedTree(ctx, r, id, 0)
}

// FinishRemoval waits for the process that removes the tree of a discarded invocation, or removes it, so that late changes
// are in the trash. It does nothing for any other invocation.
func FinishRemoval(ctx context.Context, r *core.Repository, query string) error {
	inv, err := r.Invocation(query)
	if err != nil || inv.Broken || inv.Landing != store.Discarded {
		return err
	}
	timeout, err := r.Settings.LockTimeout()
	if err != nil {
		return err
	}
	return removeEndedTree(ctx, r, inv.ID, timeout)
}

// removeEndedTree is RemoveEndedTree that waits for another process that removes the tree.
func removeEndedTree(ctx context.Context, r *core.Repository, id string, wait time.Duration) error {
	if !store.IsDir(r.Store.SandboxDir(r.ID, id)) {
		return nil
	}
	timeout, err := r.Settings.LockTimeout()
	if err != nil {
		return err
	}
	mark, err := MarkCleanup(ctx, r, timeout)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // without a directory of sandboxes there is none to remove
	}
	if err != nil {
		return err
	}
	defer mark.Close()
	late := false
	steps := []core.Step{{Name: "unlocked", Do: func() (err error) {
		late, err = removeUnlessLate(ctx, r, id, wait)
		return err
	}}, {Name: "late", Do: func() error {
		if !late {
			return nil
		}
		return removeEndedTreeLocked(ctx, r, id)
	}}}
	return r.RunSteps(ctx, "cleanup", steps)
}

// removeUnlessLate removes the tree of a sandbox that has ended, unless files were written after the last scan; then it
// reports that as late. It locks the sandbox, but not the repository.
func removeUnlessLate(ctx context.Context, r *core.Repository, id string, wait time.Duration) (late bool, err error) {
	held, err := lock.AcquireDirExclusive(ctx, r.Store.SandboxDir(r.ID, id), wait)
	if errors.Is(err, fs.ErrNotExist) || fault.Is[*fault.LockTimeoutError](err) {
		return false, nil // already removed, or another process is removing it
	}
	if err != nil {
		return false, err
	}
	defer held.Close() // before the repository lock is taken, whose holder may wait for this one
	tree := r.Store.SandboxTreePath(r.ID, id)
	if store.IsDir(tree) {
		return true, nil
	}
	if aside := store.WithdrawnPath(tree); store.IsDir(aside) {
		scanned := core.TimeOrZero(r.Store.Invocation(r.ID, id, nil).Record.CheckedAt)
		if late, err := core.TreeModifiedSince(aside, tree, scanned); err != nil || late {
			return late, err
		}
	}
	if err := core.MarkRemovable(tree); err != nil {
		return false, err
	}
	return false, r.RunSteps(ctx, "cleanup", []core.Step{
		{Name: "tree", Do: func() error {
			return errors.Join(core.WorktreeBackend(r.Git).FinishUnregister(sandbox.Spec(r, id)), durable.RemoveTree(store.RemovablePath(tree)))
		}},
		// The sandbox directory goes last: as long as it exists, the next cleanup also removes the other parts.
		{Name: "sandbox-dir", Do: func() error { return r.Store.RemoveSandboxTree(r.ID, id) }},
	})
}

// removeEndedTreeLocked removes a sandbox that has ended under the repository lock, and keeps late changes in the trash.
func removeEndedTreeLocked(ctx context.Context, r *core.Repository, id string) error {
	repo, unlock, err := r.LockAndRecover(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return RemoveRemains(ctx, r, repo, id)
}

// RemoveRemains removes all remaining parts of a sandbox that has ended, and keeps late changes in the trash.
func RemoveRemains(ctx context.Context, r *core.Repository, repo *git.Repo, id string) error {
	entry := r.Store.Invocation(r.ID, id, nil)
	// A killed process may have left nothing but git's worktree entry.
	if _, left := store.FirstExisting(r.Store.SandboxDir(r.ID, id), repo.AdminDir(id)); !left || entry.Defect != store.NoDefect || !entry.Record.HasEnded() {
		return nil
	}
	// A discard may write an archive. For a landing a person asks for it: with --leave, or with doctor.
	_, err := End(ctx, r, repo, entry, core.TrashOptions{Archive: entry.Record.HasTrashArchive || entry.Record.Landing == store.Discarded})
	return err
}

// LeftoverScratch lists the scratch directories that killed processes left in the repository, except those that go with an
// ended sandbox: while cleanupRunning, all that belong to ended sandboxes.
func LeftoverScratch(r *core.Repository, repo *git.Repo, cleanupRunning bool) ([]string, error) {
	scraps, err := repo.Leftovers()
	if err == nil && r.IsPaths() {
		var copied []string
		copied, err = pathset.LeftoverCopies(r)
		scraps = append(scraps, copied...)
	}
	return slices.DeleteFunc(scraps, func(path string) bool {
		if isLocked(path) { // a quarantine, which is used without the repository lock
			return true
		}
		id := ids.Trailing(path)
		if id == "" || path != worktree.UnregisteredDir(repo, id) || !cleanupRunning && !store.IsDir(r.Store.SandboxDir(r.ID, id)) {
			return false
		}
		return r.Store.Invocation(r.ID, id, nil).Record.HasEnded()
	}), err
}

// isLocked reports whether another process holds the lock of a directory now.
func isLocked(dir string) bool {
	held, err := lock.AcquireDirShared(context.Background(), dir, 0)
	if err == nil {
		_ = held.Close()
	}
	return fault.Is[*fault.LockTimeoutError](err)
}
