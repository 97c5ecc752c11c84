package sandbox

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/handoff"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// OpenExclusive opens the sandbox for exclusive use until leave is called. It ends nothing: if commands run in the
// sandbox, the error is a *RunningError. The caller holds the repository lock.
func (s *Sandbox) OpenExclusive(ctx context.Context) (_ *Handle, leave func(), err error) {
	v, err := s.waitExclusive(ctx)
	if err != nil {
		return nil, nil, err
	}
	h, err := s.newHandle(v.InvocationLock)
	if err != nil {
		v.Close()
		return nil, nil, err
	}
	return h, func() {
		if err := h.Tree.Close(); err != nil {
			s.Repo.Warn("%s: %v", s.Tree, err)
		}
		v.Close()
	}, nil
}

// supervisorWait is the time after which a supervisor without a command counts as one that runs something.
const supervisorWait = 2 * time.Second

// waitExclusive waits for the exclusive lock of the sandbox. Unlike LockExclusive it ends no commands.
func (s *Sandbox) waitExclusive(ctx context.Context) (v ExclusiveLock, err error) {
	timeout, err := s.Repo.Settings.LockTimeout()
	if err != nil {
		return v, err
	}
	defer func() {
		if err != nil {
			v.Close()
		}
	}()
	sandboxDir, invocationDir := s.Repo.Store.SandboxDir(s.Repo.ID, s.ID), s.Repo.Store.InvocationDir(s.Repo.ID, s.ID)
	sandboxLock, err := lock.AcquireDirExclusive(ctx, sandboxDir, timeout)
	switch {
	case err == nil:
		v.lockFiles = append(v.lockFiles, sandboxLock)
	case errors.Is(err, os.ErrNotExist): // the caller finds the reason in the record
	case fault.Is[*fault.LockTimeoutError](err):
		return v, s.busyError(timeout, sandboxDir)
	default:
		return v, err
	}
	for started := time.Now(); ; {
		v.InvocationLock, err = lock.AcquireDirExclusive(ctx, invocationDir, 0)
		switch {
		case err == nil:
			v.lockFiles = append(v.lockFiles, v.InvocationLock)
			return v, nil
		case errors.Is(err, os.ErrNotExist):
			return v, &fault.NotFoundError{Kind: "invocation", Query: s.ID}
		case !fault.Is[*fault.LockTimeoutError](err):
			return v, err
		case len(proc.FindSupervisors(invocationDir)) > 0:
			// One without a command is about to begin, or to end because its process was killed.
			if programs := proc.TaskCommands(invocationDir); len(programs) > 0 || time.Since(started) > supervisorWait {
				return v, &fault.RunningError{ID: s.ID, Programs: programs}
			}
		case timeout >= 0 && time.Since(started) > timeout: // an upload, or a command that has no supervisor yet
			return v, s.busyError(timeout, invocationDir)
		}
		if err := shortPause(ctx); err != nil {
			return v, err
		}
	}
}

// ImportPendingExclusive imports pending git state from behind the walls and from a clone; the caller has exclusive use of the
// sandbox. It fails if something cannot be imported, because that would be lost.
func (s *Sandbox) ImportPendingExclusive(ctx context.Context, repo *git.Repo, h *Handle) error {
	if err := s.importOutside(ctx, repo); err != nil {
		return err
	}
	if pending, err := s.hasPendingImport(h.Prims); err != nil || !pending {
		return err
	}
	in, err := s.enterNamespace(ctx, &Handle{
		Tree: h.Tree, overlay: h.overlay, Prims: store.Primitives{Isolation: h.Prims.Isolation, Outputs: "none"}, InvocationLock: h.InvocationLock, lockedRepo: repo,
	})
	if err != nil {
		return withoutSetupError(err)
	}
	err = in.handoff.Import(ctx, in.ns, in.treeDir)
	if err != nil {
		err = in.handoff.NewImportError(err)
	}
	return errors.Join(err, in.close())
}

// restoreUpper updates the upper directory, or the git directories of a clone, to the state that was restored on the host, and
// saves that both sides agree.
func (s *Sandbox) restoreUpper(ctx context.Context, restore *snapshot.Restoration, prims store.Primitives) error {
	if !s.hasOwnGitState(prims) || !store.IsDir(handoff.UpperDir(s.Repo, s.ID)) {
		return nil
	}
	if err := restore.RestoreUpperDir(ctx); err != nil {
		return err
	}
	if err := handoff.New(s.Repo, s.ID).RecordRestored(ctx); err != nil {
		return err
	}
	s.exportOutsideOrWarn(ctx) // a clone with walls has a second git directory in its tree
	return nil
}
