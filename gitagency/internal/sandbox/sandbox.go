// Package sandbox is the life of one sandbox after its creation: commands behind walls, uploads, ports, snapshots, rollback
// and sync. It never changes an integration worktree.
package sandbox

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Sandbox is the worktree of one invocation: commands run in it, files are uploaded to it, snapshots are taken of it.
// Every method reads the current state on disk, so a Sandbox may be kept for any time and used by several goroutines.
type Sandbox struct {
	ID string // invocation id

	Repo *core.Repository
	Tree string
}

// Open returns the sandbox of an invocation, given its id or a unique prefix. It fails if the invocation is broken
// or has ended.
func Open(r *core.Repository, query string) (*Sandbox, error) {
	inv, err := r.Invocation(query)
	if err != nil {
		return nil, err
	}
	if _, err := inv.Path(); err != nil {
		return nil, err
	}
	return Of(r, inv.ID), nil
}

// Of returns the sandbox of an invocation without checking that it exists.
func Of(r *core.Repository, id string) *Sandbox {
	return &Sandbox{ID: id, Repo: r, Tree: r.Store.SandboxTreePath(r.ID, id)}
}

// Spec returns the paths and the branch of the sandbox of an invocation.
func Spec(r *core.Repository, id string) changeset.Spec {
	return changeset.Spec{ID: id, Tree: r.Store.SandboxTreePath(r.ID, id), Branch: core.SandboxRef(id), Scratch: r.Store.InvocationDir(r.ID, id), OverlayDir: r.Store.OverlayDir(r.ID, id), CloneDir: r.Store.CloneDir(r.ID, id)}
}

// WorkDir returns the absolute path of the sandbox.
func (s *Sandbox) WorkDir() string { return s.Tree }

// Handle is an open sandbox. Its lock prevents the removal of the sandbox.
type Handle struct {
	*guard.Tree
	worktreeID     string           // id of the integration worktree
	branch         string           // full ref that the work lands on, as in Invocation
	Base           string           // commit that the sandbox started from
	limits         confine.Limits   // limits of its commands
	runner         string           // agent that it is for
	allowed        store.Grants     // paths that the user allowed to it
	paths          []store.PathMeta // plain directories that it is over; none for a sandbox of a repository
	Prims          store.Primitives
	overlay        *overlay.Tree // directories of which the tree consists if it is an overlay, and Tree has only its marker; else nil
	lockedRepo     *git.Repo     // repository with its lock held by the caller; else nil
	InvocationLock *os.File      // lock of the invocation directory; inherited by processes that work in the sandbox
}

// open checks the sandbox and locks it against removal. It first finishes an interrupted rollback.
func (s *Sandbox) open(ctx context.Context) (*Handle, error) { return s.OpenLocked(ctx, nil) }

// ImportAndOpen imports pending commits of a sandbox from behind its walls or from a clone, so that git on the host sees them, and
// opens the sandbox, so that it is not removed meanwhile.
func ImportAndOpen(ctx context.Context, r *core.Repository, inv core.Invocation) (*Handle, error) {
	if _, err := inv.Path(); err != nil {
		return nil, err
	}
	s := Of(r, inv.ID)
	if err := s.importPending(ctx); err != nil {
		return nil, err
	}
	return s.open(ctx)
}

// OpenLocked is open for a caller that holds the repository lock.
func (s *Sandbox) OpenLocked(ctx context.Context, repo *git.Repo) (*Handle, error) {
	for {
		if err := s.FinishRollback(ctx, repo); err != nil {
			return nil, err
		}
		h, err := s.openOnce(ctx)
		if err != nil || !s.HasRollbackJournal() {
			return h, err
		}
		if err := h.Close(); err != nil { // another rollback was killed while we waited for the lock
			return nil, err
		}
	}
}

func (s *Sandbox) openOnce(ctx context.Context) (_ *Handle, err error) {
	timeout, err := s.Repo.Settings.LockTimeout()
	if err != nil {
		return nil, err
	}
	held, err := s.lockShared(ctx, timeout)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &fault.NotFoundError{Kind: "invocation", Query: s.ID}
	}
	if fault.Is[*fault.LockTimeoutError](err) {
		return nil, &fault.BusyError{ID: s.ID, Waited: timeout, Holders: proc.FileUsers(s.Repo.Store.SandboxDir(s.Repo.ID, s.ID))}
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, held.Close())
		}
	}()
	return s.newHandle(held)
}

// newHandle checks the sandbox and returns a handle that owns held, the lock that prevents its removal.
func (s *Sandbox) newHandle(held *os.File) (*Handle, error) {
	inv := core.InvocationFromEntry(s.Repo.Store.Invocation(s.Repo.ID, s.ID, nil), nil) // read again: it cannot be removed any more
	if _, err := inv.Path(); err != nil {
		return nil, err
	}
	tree, err := guard.OpenOwnTree(s.Tree)
	if err != nil {
		return nil, err
	}
	if err := checkSandbox(tree); err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	layers, err := s.Repo.OverlayTree(s.ID)
	if err != nil {
		return nil, errors.Join(&noLayerError{err}, tree.Close())
	}
	return &Handle{Tree: tree, overlay: layers, worktreeID: inv.WorktreeID, runner: inv.Runner, allowed: inv.Entry.Record.WallGrants(), paths: inv.Entry.Record.Paths, branch: inv.IntegrationBranch, Base: inv.BaseCommit, limits: LimitsFromRecord(inv.Limits), Prims: settings.FillLegacyPrimitives(inv.Primitives), InvocationLock: held}, nil
}

// noLayerError reports an overlay whose layer cannot be read.
type noLayerError struct{ error }

func (e *noLayerError) Unwrap() error { return e.error }

// lockShared takes the shared lock of the sandbox. It passes through the lock of the sandbox directory, which is held
// exclusively while a sandbox is being ended.
func (s *Sandbox) lockShared(ctx context.Context, timeout time.Duration) (*os.File, error) {
	sandboxLock, err := lock.AcquireDirShared(ctx, s.Repo.Store.SandboxDir(s.Repo.ID, s.ID), timeout)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // the caller finds the reason in the record
		return nil, err
	}
	invocationLock, err := lock.AcquireDirShared(ctx, s.Repo.Store.InvocationDir(s.Repo.ID, s.ID), timeout)
	if sandboxLock != nil {
		err = errors.Join(err, sandboxLock.Close())
	}
	return invocationLock, err
}

// handOver closes our copy of the lock; the process that inherited it keeps the sandbox.
func (s *Handle) handOver() { _ = s.InvocationLock.Close() }

// Close closes the tree and releases the lock of the invocation, unless handOver has closed it.
func (s *Handle) Close() error {
	err := s.InvocationLock.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil // closed by handOver
	}
	return errors.Join(s.Tree.Close(), err)
}

// checkSandbox refuses a tree that has no sandbox marker or has the marker of an integration worktree.
func checkSandbox(tree *guard.Tree) error {
	theirs, err := tree.HasMarker(guard.Integration)
	if err != nil {
		return err
	}
	ours, err := tree.HasMarker(guard.Sandbox)
	if err != nil {
		return err
	}
	if theirs || !ours {
		return &fault.NotSandboxError{Path: tree.Path, Integration: theirs}
	}
	return nil
}
