package gitagency

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Sandbox is the worktree of one invocation: commands run in it, files are uploaded to it, snapshots are taken of it.
// Every method reads the current state on disk, so a Sandbox may be kept for any time and used by several goroutines.
type Sandbox struct {
	ID string // invocation id

	repo *Repository
	tree string
}

// Sandbox returns the sandbox of an invocation, given its id or a unique prefix. It fails if the invocation is broken
// or has ended.
func (r *Repository) Sandbox(query string) (*Sandbox, error) {
	inv, err := r.Invocation(query)
	if err != nil {
		return nil, err
	}
	if _, err := inv.Path(); err != nil {
		return nil, err
	}
	return r.sandboxOf(inv.ID), nil
}

// sandboxOf returns the sandbox of an invocation without checking that it exists.
func (r *Repository) sandboxOf(id string) *Sandbox {
	return &Sandbox{ID: id, repo: r, tree: r.store.SandboxTreePath(r.ID, id)}
}

// WorkDir returns the absolute path of the sandbox.
func (s *Sandbox) WorkDir() string { return s.tree }

// Teardown ends the sandbox as Discard does: it ends the commands, keeps the content under a ref and removes the
// sandbox. It succeeds if the sandbox, or a part of it, is gone already.
func (s *Sandbox) Teardown(ctx context.Context) error {
	_, err := s.repo.Discard(ctx, s.ID)
	if is[*BrokenError](err) { // a part is missing; repair, then discard the rest
		if _, err := s.repo.Fix(ctx, s.ID); err != nil && !is[*NotFoundError](err) {
			return err
		}
		_, err = s.repo.Discard(ctx, s.ID)
	}
	if is[*NotFoundError](err) || is[*EndedError](err) {
		return nil
	}
	return err
}

// handle is an open sandbox. Its lock prevents the removal of the sandbox.
type handle struct {
	*guard.Tree
	worktreeID     string // id of the integration worktree
	base           string // commit that the sandbox started from
	limits         Limits // limits of its commands
	prims          Primitives
	lockedRepo     *git.Repo // repository with its lock held by the caller; else nil
	invocationLock *os.File  // lock of the invocation directory; inherited by processes that work in the sandbox
}

// open checks the sandbox and locks it against removal. It first finishes an interrupted rollback.
func (s *Sandbox) open(ctx context.Context) (*handle, error) { return s.openLocked(ctx, nil) }

// openLocked is open for a caller that holds the repository lock.
func (s *Sandbox) openLocked(ctx context.Context, repo *git.Repo) (*handle, error) {
	for {
		if err := s.finishRollback(ctx, repo); err != nil {
			return nil, err
		}
		h, err := s.openOnce(ctx)
		if err != nil || !s.hasRollbackJournal() {
			return h, err
		}
		if err := h.close(); err != nil { // another rollback was killed while we waited for the lock
			return nil, err
		}
	}
}

func (s *Sandbox) openOnce(ctx context.Context) (_ *handle, err error) {
	timeout, err := s.repo.lockTimeout()
	if err != nil {
		return nil, err
	}
	held, err := s.lockShared(ctx, timeout)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &NotFoundError{Kind: "invocation", Query: s.ID}
	}
	if is[*LockTimeoutError](err) {
		return nil, &BusyError{ID: s.ID, Waited: timeout, Holders: proc.FileUsers(s.repo.store.SandboxDir(s.repo.ID, s.ID))}
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
func (s *Sandbox) newHandle(held *os.File) (*handle, error) {
	inv := invocationFromEntry(s.repo.store.Invocation(s.repo.ID, s.ID, nil), nil) // read again: it cannot be removed any more
	if _, err := inv.Path(); err != nil {
		return nil, err
	}
	tree, err := guard.OpenTree(s.tree)
	if err != nil {
		return nil, err
	}
	if err := checkSandbox(tree); err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	return &handle{Tree: tree, worktreeID: inv.WorktreeID, base: inv.BaseCommit, limits: limitsFromRecord(inv.Limits), prims: fillLegacyPrimitives(inv.Primitives), invocationLock: held}, nil
}

// fillLegacyPrimitives fills in the primitives that records written before there were walls do not have.
func fillLegacyPrimitives(p Primitives) Primitives {
	p.Isolation, p.Outputs = cmp.Or(p.Isolation, isolationNone), cmp.Or(p.Outputs, outputsOpen)
	return p
}

// lockShared takes the shared lock of the sandbox. It passes through the lock of the sandbox directory, which is held
// exclusively while a sandbox is being ended.
func (s *Sandbox) lockShared(ctx context.Context, timeout time.Duration) (*os.File, error) {
	sandboxLock, err := lock.AcquireDirShared(ctx, s.repo.store.SandboxDir(s.repo.ID, s.ID), timeout)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // the caller finds the reason in the record
		return nil, err
	}
	invocationLock, err := lock.AcquireDirShared(ctx, s.repo.store.InvocationDir(s.repo.ID, s.ID), timeout)
	if sandboxLock != nil {
		err = errors.Join(err, sandboxLock.Close())
	}
	return invocationLock, err
}

// handOver closes our copy of the lock; the process that inherited it keeps the sandbox.
func (s *handle) handOver() { _ = s.invocationLock.Close() }

func (s *handle) close() error {
	err := s.invocationLock.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil // closed by handOver
	}
	return errors.Join(s.Close(), err)
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
		return &NotSandboxError{Path: tree.Path, Integration: theirs}
	}
	return nil
}
