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
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// openExclusive opens the sandbox for exclusive use until leave is called. It ends nothing: if commands run in the
// sandbox, the error is a *RunningError. The caller holds the repository lock.
func (s *Sandbox) openAlone(ctx context.Context) (_ *site, leave func(), err error) {
	v, err := s.await(ctx)
	if err != nil {
		return nil, nil, err
	}
	h, err := s.look(v.inside)
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
func (s *Sandbox) await(ctx context.Context) (v vacancy, err error) {
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
	sandboxLock, err := lock.Clear(ctx, sandboxDir, timeout)
	switch {
	case err == nil:
		v.held = append(v.held, sandboxLock)
	case errors.Is(err, os.ErrNotExist): // the caller finds the reason in the record
	case is[*LockTimeoutError](err):
		return v, s.busy(timeout, sandboxDir)
	default:
		return v, err
	}
	for started := time.Now(); ; {
		v.inside, err = lock.Clear(ctx, invocationDir, 0)
		switch {
		case err == nil:
			v.held = append(v.held, v.inside)
			return v, nil
		case errors.Is(err, os.ErrNotExist):
			return v, &NotFoundError{Kind: "invocation", Query: s.ID}
		case !is[*LockTimeoutError](err):
			return v, err
		case len(proc.Supervisors(invocationDir)) > 0:
			return v, &RunningError{ID: s.ID, Programs: proc.Programs(invocationDir)}
		case timeout >= 0 && time.Since(started) > timeout: // an upload, or a command that has no supervisor yet
			return v, s.busy(timeout, invocationDir)
		}
		if err := aMoment(ctx); err != nil {
			return v, err
		}
	}
}

// importPendingExclusive imports pending git state from behind the walls; the caller has exclusive use of the
// sandbox. It fails if something cannot be imported, because that would be lost.
func (s *Sandbox) bringOutAlone(ctx context.Context, repo *git.Repo, h *site) error {
	if pending, err := s.pendingInside(h.prims); err != nil || !pending {
		return err
	}
	in, err := s.goInside(ctx, &site{
		Tree: h.Tree, prims: Primitives{Isolation: h.prims.Isolation, Outputs: "none"}, occupied: h.occupied, repo: repo,
	})
	if err != nil {
		return notExec(err)
	}
	err = in.door.out(ctx, in.room, in.dir)
	if err != nil {
		err = fmt.Errorf("%w: %w", errStuckInside, err)
	}
	return errors.Join(err, in.close())
}

// restoreUpper updates the upper directory to the state that was restored on the host, and saves that both sides
// agree.
func (s *Sandbox) alignLayer(ctx context.Context, restore *git.Restoration, prims Primitives) error {
	if prims.Isolation != isolationOS || !store.IsDir(s.layer()) {
		return nil
	}
	if err := restore.Layer(ctx); err != nil {
		return err
	}
	d := &door{s: s, upper: s.layer()}
	if git.LayeredEntry(d.upper, s.ID) == "" {
		return durable.Remove(d.statePath()) // the overlay shows the real files, as in a new sandbox
	}
	state := doorState{On: d.checkedOut(), Real: d.real()}
	found, err := s.repo.git.Lookup(ctx, sandboxRef(s.ID), cmp.Or(state.On, "HEAD")+"^{commit}")
	if err != nil {
		return err
	}
	state.Tip, state.Head = found[0].OID, found[1].OID
	data, err := os.ReadFile(filepath.Join(s.repo.git.AdminDir(s.ID), "index"))
	if err != nil {
		return err
	}
	if x, err := git.ReadIndex(data, git.FormatOf(state.Tip)); err == nil {
		state.Index, state.Real = d.shut(x, state.Tip, state.Real)
	}
	if state.Layer, err = d.layer(); err != nil {
		return err
	}
	return d.save(state)
}
