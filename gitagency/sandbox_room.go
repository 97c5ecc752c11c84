package gitagency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// attach creates the namespaces of the sandbox or joins existing ones. The creator holds the setup lock until it lets
// others in; a process that joins waits for that.
func (in *inside) reach(ctx context.Context, h *site) error {
	timeout, err := in.s.repo.lockTimeout()
	if err != nil {
		return err
	}
	plan := sync.OnceValues(func() (walls, error) { return in.s.plan(ctx, h.prims) })
	request := in.around(ctx, h.prims, plan, timeout)
	for started := time.Now(); ; {
		if in.room, err = in.s.openOrJoin(ctx, h.occupied, timeout, request); err != nil {
			return err
		}
		in.walls, err = plan()
		if in.walls.stands = in.walls.plan; err != nil || in.room.Opened {
			return err
		}
		if in.walls.stands, err = in.s.sameWalls(in.room, in.walls.plan); err != nil || in.room.Open {
			return err
		}
		// Wait outside the namespaces: if their creator is killed they end with it, and the next process creates them
		// anew.
		if err := in.goOut(); err != nil {
			return err
		}
		if timeout >= 0 && time.Since(started) > timeout {
			return in.s.busy(timeout, in.s.repo.store.WallsDir(in.s.repo.ID, in.s.ID))
		}
		if !in.walls.plan.Bare { // without an overlay there is no setup lock
			if err := in.s.awaitThreshold(ctx, timeout); err != nil {
				return err
			}
		}
		if err := aMoment(ctx); err != nil { // until the init process has been told
			return err
		}
	}
}

func (s *Sandbox) awaitThreshold(ctx context.Context, timeout time.Duration) error {
	held, err := lock.Occupy(ctx, s.threshold(), timeout)
	if is[*LockTimeoutError](err) {
		return s.busy(timeout, s.threshold())
	}
	if err != nil {
		return err
	}
	return held.Close()
}

func aMoment(ctx context.Context) error {
	select {
	case <-time.After(2 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// setupLockDir returns the directory that the creator of the namespaces locks. It is created with the upper directory
// and stays.
func (s *Sandbox) threshold() string {
	return filepath.Join(s.repo.store.WallsDir(s.repo.ID, s.ID), "git", "work")
}

func (s *Sandbox) busy(waited time.Duration, held string) error {
	return &BusyError{ID: s.ID, Waited: waited, Holders: proc.Holders(held)}
}

// prepareWalls plans the walls and creates the directories that they need.
func (s *Sandbox) plan(ctx context.Context, prims Primitives) (walls, error) {
	w, err := s.planWalls(prims)
	if err = s.repo.blame(err); err == nil && !w.plan.Bare {
		err = os.MkdirAll(s.caches(), 0o700)
	}
	if err == nil {
		err = s.makeLayers(ctx, w.plan)
	}
	return w, err
}

// newWalls describes the walls for namespaces that this process creates. Its callback runs only then, not when
// joining, so no process uses the overlay meanwhile.
func (in *inside) around(ctx context.Context, prims Primitives, plan func() (walls, error), timeout time.Duration) proc.Walls {
	return proc.Walls{Network: prims.Outputs != outputsOpen, Draw: func() ([]byte, error) {
		w, err := plan()
		if err != nil {
			return nil, err
		}
		if !w.plan.Bare {
			if in.threshold, err = lock.Clear(ctx, in.s.threshold(), timeout); err != nil {
				return nil, err
			}
			upper := filepath.Join(filepath.Dir(in.s.threshold()), "upper")
			git.Uncover(upper, filepath.Join(filepath.Dir(upper), "uncovered"))
			if err := in.s.repo.git.Readdress(upper, in.s.ID); err != nil {
				in.s.repo.warn("sandbox %s: git inside still looks for it where it was before it was moved: %v", in.s.ID, err)
			}
		}
		return json.Marshal(w.plan)
	}}
}

// closeNamespace leaves the namespaces.
func (in *inside) goOut() error {
	if in.room == nil {
		return nil
	}
	err := in.room.Close()
	in.room = nil
	return err
}

// releaseSetupLock releases the setup lock, for which other processes may wait.
func (in *inside) stepOff() error {
	held := in.threshold
	if in.threshold = nil; held == nil {
		return nil
	}
	return held.Close()
}

// openOrJoin creates the namespaces, unless they exist; then it joins them.
func (s *Sandbox) openOrJoin(ctx context.Context, invocationLock *os.File, timeout time.Duration, w proc.Walls) (*proc.Room, error) {
	dir := s.repo.store.WallsDir(s.repo.ID, s.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	label := s.repo.store.InvocationDir(s.repo.ID, s.ID)
	for started := time.Now(); ; {
		held, err := lock.Clear(ctx, dir, 0)
		if err == nil {
			ns, err := w.Begin(ctx, label, held, invocationLock)
			return ns, errors.Join(err, held.Close())
		}
		if !is[*LockTimeoutError](err) {
			return nil, err
		}
		ns, err := proc.Join(ctx, label)
		switch {
		case err == nil:
			return ns, nil
		case !errors.Is(err, proc.ErrNoRoom):
			return nil, err
		case timeout >= 0 && time.Since(started) > timeout:
			return nil, s.busy(timeout, dir)
		}
		if err := aMoment(ctx); err != nil { // another process is creating or leaving them
			return nil, err
		}
	}
}

// checkExistingWalls refuses to join walls that are weaker than the planned ones, which happens when the settings
// have changed since they were built. Otherwise it returns the plan of the existing walls.
func (s *Sandbox) sameWalls(ns *proc.Room, want confine.Plan) (have confine.Plan, err error) {
	if err := json.Unmarshal(ns.Plan, &have); err != nil {
		return have, err
	}
	if weaker := have.Weaker(want); weaker != "" {
		return have, fmt.Errorf("other commands run there behind walls that are older than the settings: %s; wait until they have ended", weaker)
	}
	return have, nil
}
