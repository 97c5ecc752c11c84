package gitagency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// openExclusive opens the sandbox for exclusive use until leave is called. It ends nothing: if commands run in the
// sandbox, the error is a *RunningError. The caller holds the repository lock.
func (s *Sandbox) openExclusive(ctx context.Context) (_ *handle, leave func(), err error) {
	v, err := s.waitExclusive(ctx)
	if err != nil {
		return nil, nil, err
	}
	h, err := s.newHandle(v.invocationLock)
	if err != nil {
		v.close()
		return nil, nil, err
	}
	return h, func() {
		if err := h.Close(); err != nil {
			s.repo.warn("%s: %v", s.tree, err)
		}
		v.close()
	}, nil
}

// waitExclusive waits for the exclusive lock of the sandbox. Unlike lockExclusive it ends no commands.
func (s *Sandbox) waitExclusive(ctx context.Context) (v exclusiveLock, err error) {
	timeout, err := s.repo.lockTimeout()
	if err != nil {
		return v, err
	}
	defer func() {
		if err != nil {
			v.close()
		}
	}()
	sandboxDir, invocationDir := s.repo.store.SandboxDir(s.repo.ID, s.ID), s.repo.store.InvocationDir(s.repo.ID, s.ID)
	sandboxLock, err := lock.AcquireDirExclusive(ctx, sandboxDir, timeout)
	switch {
	case err == nil:
		v.lockFiles = append(v.lockFiles, sandboxLock)
	case errors.Is(err, os.ErrNotExist): // the caller finds the reason in the record
	case is[*LockTimeoutError](err):
		return v, s.busyError(timeout, sandboxDir)
	default:
		return v, err
	}
	for started := time.Now(); ; {
		v.invocationLock, err = lock.AcquireDirExclusive(ctx, invocationDir, 0)
		switch {
		case err == nil:
			v.lockFiles = append(v.lockFiles, v.invocationLock)
			return v, nil
		case errors.Is(err, os.ErrNotExist):
			return v, &NotFoundError{Kind: "invocation", Query: s.ID}
		case !is[*LockTimeoutError](err):
			return v, err
		case len(proc.FindSupervisors(invocationDir)) > 0:
			return v, &RunningError{ID: s.ID, Programs: proc.TaskCommands(invocationDir)}
		case timeout >= 0 && time.Since(started) > timeout: // an upload, or a command that has no supervisor yet
			return v, s.busyError(timeout, invocationDir)
		}
		if err := shortPause(ctx); err != nil {
			return v, err
		}
	}
}

// importPendingExclusive imports pending git state from behind the walls; the caller has exclusive use of the
// sandbox. It fails if something cannot be imported, because that would be lost.
func (s *Sandbox) importPendingExclusive(ctx context.Context, repo *git.Repo, h *handle) error {
	if pending, err := s.hasPendingImport(h.prims); err != nil || !pending {
		return err
	}
	in, err := s.enterNamespace(ctx, &handle{
		Tree: h.Tree, prims: Primitives{Isolation: h.prims.Isolation, Outputs: "none"}, invocationLock: h.invocationLock, lockedRepo: repo,
	})
	if err != nil {
		return asImportError(err)
	}
	err = in.handoff.importFromSandbox(ctx, in.ns, in.treeDir)
	if err != nil {
		err = fmt.Errorf("%w: %w", errImportFailed, err)
	}
	return errors.Join(err, in.close())
}

// restoreUpper updates the upper directory to the state that was restored on the host, and saves that both sides
// agree.
func (s *Sandbox) restoreUpper(ctx context.Context, restore *snapshot.Restoration, prims Primitives) error {
	if prims.Isolation != isolationOS || !store.IsDir(s.upperDir()) {
		return nil
	}
	if err := restore.RestoreUpperDir(ctx); err != nil {
		return err
	}
	d := &handoff{sandbox: s, upper: s.upperDir()}
	if overlay.OpaqueEntry(d.upper, s.ID) == "" {
		return durable.Remove(d.statePath()) // the overlay shows the real files, as in a new sandbox
	}
	state := agreedState{RealHead: d.realHead(), RealFingerprint: d.fingerprintReal()}
	found, err := s.repo.git.Lookup(ctx, sandboxRef(s.ID), cmp.Or(state.RealHead, "HEAD")+"^{commit}")
	if err != nil {
		return err
	}
	state.BranchTip, state.SandboxHead = found[0].OID, found[1].OID
	data, err := os.ReadFile(filepath.Join(s.repo.git.AdminDir(s.ID), "index"))
	if err != nil {
		return err
	}
	if x, err := index.Read(data, object.FormatOf(state.BranchTip)); err == nil {
		state.IndexFingerprint, state.RealFingerprint = d.skipNestedRepositories(x, state.BranchTip, state.RealFingerprint)
	}
	if state.UpperFingerprint, err = d.fingerprintUpper(); err != nil {
		return err
	}
	return d.saveState(state)
}
