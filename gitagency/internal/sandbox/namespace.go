package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/copies"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/handoff"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// attach creates the namespaces of the sandbox or joins existing ones. The creator holds the setup lock until it lets
// others in; a process that joins waits for that.
func (in *nsSession) attach(ctx context.Context, h *Handle) error {
	timeout, err := in.sandbox.Repo.Settings.LockTimeout()
	if err != nil {
		return err
	}
	plan := sync.OnceValues(func() (Walls, error) {
		return in.sandbox.prepareWalls(ctx, WallsRequest{Primitives: h.Prims, Runner: h.runner, Allowed: h.allowed})
	})
	request := in.newWalls(ctx, h.Prims, plan, timeout)
	for started := time.Now(); ; {
		if in.ns, err = in.sandbox.openOrJoin(ctx, h.InvocationLock, timeout, request); err != nil {
			return err
		}
		in.walls, err = plan()
		if in.walls.applied = in.walls.plan; err != nil || in.ns.Created {
			return err
		}
		if in.walls.applied, err = in.sandbox.checkExistingWalls(in.ns, in.walls.plan); err != nil || in.ns.Joinable {
			return err
		}
		// Wait outside the namespaces: if their creator is killed they end with it, and the next process creates them
		// anew.
		if err := in.closeNamespace(); err != nil {
			return err
		}
		if timeout >= 0 && time.Since(started) > timeout {
			return in.sandbox.busyError(timeout, in.sandbox.Repo.Store.WallsDir(in.sandbox.Repo.ID, in.sandbox.ID))
		}
		if !in.walls.plan.NetworkOnly { // without an overlay there is no setup lock
			if err := in.sandbox.waitSetupLock(ctx, timeout); err != nil {
				return err
			}
		}
		if err := shortPause(ctx); err != nil { // until the init process has been told
			return err
		}
	}
}

func (s *Sandbox) waitSetupLock(ctx context.Context, timeout time.Duration) error {
	held, err := lock.AcquireDirShared(ctx, s.setupLockDir(), timeout)
	if fault.Is[*fault.LockTimeoutError](err) {
		return s.busyError(timeout, s.setupLockDir())
	}
	if err != nil {
		return err
	}
	return held.Close()
}

func shortPause(ctx context.Context) error {
	select {
	case <-time.After(2 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// setupLockDir returns the directory that the creator of the namespaces locks. It is created with the upper directory
// and stays.
func (s *Sandbox) setupLockDir() string {
	return filepath.Join(s.Repo.Store.WallsDir(s.Repo.ID, s.ID), "git", "work")
}

func (s *Sandbox) busyError(waited time.Duration, held string) error {
	return &fault.BusyError{ID: s.ID, Waited: waited, Holders: proc.FileUsers(held)}
}

// prepareWalls plans the walls and creates the directories that they need.
func (s *Sandbox) prepareWalls(ctx context.Context, req WallsRequest) (Walls, error) {
	w, err := s.PlanWalls(req)
	if err = AttributeToSetting(s.Repo, err); err == nil && !w.plan.NetworkOnly {
		err = s.createOwnDirs()
	}
	if err == nil && w.plan.Home.Path != "" {
		err = os.MkdirAll(w.plan.Home.Dir, 0o700)
	}
	if err == nil && w.plan.Software.Dir != "" {
		err = os.MkdirAll(w.plan.Software.Mount, 0o700)
	}
	if err == nil {
		err = handoff.CreateUpperDirs(ctx, s.Repo, s.ID, w.plan)
	}
	if err == nil && s.Repo.IsClone(s.ID) && !w.plan.NetworkOnly {
		err = s.checkInnerClone()
	}
	return w, err
}

// newWalls describes the walls for namespaces that this process creates. Its callback runs only then, not when
// joining, so no process uses the overlay meanwhile.
func (in *nsSession) newWalls(ctx context.Context, prims store.Primitives, plan func() (Walls, error), timeout time.Duration) proc.Walls {
	return proc.Walls{OwnNetwork: prims.Outputs != settings.OutputsOpen, MakePlan: func() ([]byte, error) {
		w, err := plan()
		if err != nil {
			return nil, err
		}
		if !w.plan.NetworkOnly {
			if in.setupLock, err = lock.AcquireDirExclusive(ctx, in.sandbox.setupLockDir(), timeout); err != nil {
				return nil, err
			}
			if err := in.prepareUpper(w); err != nil {
				return nil, err
			}
			for _, l := range w.plan.Overlays {
				if err := overlay.Omit(l.Upper, l.Path, w.plan.Omitted); err != nil {
					return nil, err
				}
			}
			if home := w.plan.Home.Dir; home != "" {
				if err := (copies.Set{Dir: home, Record: home + "-copies", KeepRemoved: true}).Write(w.homeFiles); err != nil {
					in.sandbox.Repo.Warn("sandbox %s: settings are missing in its home directory: %v", in.sandbox.ID, err)
				}
			}
		}
		return json.Marshal(w.plan)
	}}
}

// prepareUpper prepares the upper directory over the git directory, which is not mounted. A clone has none.
func (in *nsSession) prepareUpper(w Walls) error {
	if in.sandbox.Repo.IsClone(in.sandbox.ID) {
		return nil
	}
	upper := filepath.Join(filepath.Dir(in.sandbox.setupLockDir()), "upper")
	overlay.RemoveObjectWhiteouts(upper, filepath.Join(filepath.Dir(upper), "uncovered"))
	if err := handoff.BorrowLinkedObjects(in.sandbox.Repo, upper); err != nil { // it may have been a directory when the sandbox began
		in.sandbox.Repo.Warn("sandbox %s: git behind the walls does not find the objects of the repository: %v", in.sandbox.ID, err)
	}
	if err := worktree.RepointUpperEntry(in.sandbox.Repo.Git, upper, in.sandbox.ID); err != nil {
		in.sandbox.Repo.Warn("sandbox %s: git behind the walls still uses the old path of the sandbox, which was moved: %v", in.sandbox.ID, err)
	}
	filtered := copies.Set{Dir: upper, Record: filepath.Join(filepath.Dir(upper), "filtered"), Moved: filepath.Join("worktrees", in.sandbox.ID, "modules")}
	if err := filtered.Write(w.gitConfig); err != nil {
		return fmt.Errorf("hide secrets in the configuration of the repository: %w", err)
	}
	return nil
}

// closeNamespace leaves the namespaces.
func (in *nsSession) closeNamespace() error {
	if in.ns == nil {
		return nil
	}
	err := in.ns.Close()
	in.ns = nil
	return err
}

// releaseSetupLock releases the setup lock, for which other processes may wait.
func (in *nsSession) releaseSetupLock() error {
	held := in.setupLock
	if in.setupLock = nil; held == nil {
		return nil
	}
	return held.Close()
}

// openOrJoin creates the namespaces, unless they exist; then it joins them.
func (s *Sandbox) openOrJoin(ctx context.Context, invocationLock *os.File, timeout time.Duration, w proc.Walls) (*proc.Namespace, error) {
	dir := s.Repo.Store.WallsDir(s.Repo.ID, s.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	label := s.Repo.Store.InvocationDir(s.Repo.ID, s.ID)
	for started := time.Now(); ; {
		held, err := lock.AcquireDirExclusive(ctx, dir, 0)
		if err == nil {
			ns, err := w.BeginNamespace(ctx, label, held, invocationLock)
			return ns, errors.Join(err, held.Close())
		}
		if !fault.Is[*fault.LockTimeoutError](err) {
			return nil, err
		}
		ns, err := proc.JoinNamespace(ctx, label)
		switch {
		case err == nil:
			return ns, nil
		case !errors.Is(err, proc.ErrNoNamespace):
			return nil, err
		case timeout >= 0 && time.Since(started) > timeout:
			return nil, s.busyError(timeout, dir)
		}
		if err := shortPause(ctx); err != nil { // another process is creating or leaving them
			return nil, err
		}
	}
}

// checkExistingWalls refuses to join walls that are weaker than the planned ones, which happens when the settings
// have changed since they were built. Otherwise it returns the plan of the existing walls.
func (s *Sandbox) checkExistingWalls(ns *proc.Namespace, want walls.Plan) (have walls.Plan, err error) {
	if have, err = decodePlan(ns); err != nil {
		return have, err
	}
	if weaker := have.WeakerThan(want); weaker != "" {
		return have, fmt.Errorf("commands run in the sandbox behind walls that were built with older settings: %s; wait until they end", weaker)
	}
	return have, nil
}
