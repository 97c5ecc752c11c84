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

// reach opens the room of the sandbox, or joins those who are in it. Who opens it stands on the threshold until
// they let others in; who joins waits for that.
func (in *inside) reach(ctx context.Context, site *site) error {
	timeout, err := in.s.repo.lockTimeout()
	if err != nil {
		return err
	}
	plan := sync.OnceValues(func() (walls, error) { return in.s.plan(ctx, site.prims) })
	around := in.around(ctx, site.prims, plan, timeout)
	for began := time.Now(); ; {
		if in.room, err = in.s.openOrJoin(ctx, site.occupied, timeout, around); err != nil {
			return err
		}
		in.walls, err = plan()
		if in.walls.stands = in.walls.plan; err != nil || in.room.Opened {
			return err
		}
		if in.walls.stands, err = in.s.sameWalls(in.room, in.walls.plan); err != nil || in.room.Open {
			return err
		}
		// It is waited for outside: if who opened the room is killed, the room ends with them, and the next one to
		// open it takes it up.
		if err := in.goOut(); err != nil {
			return err
		}
		if timeout >= 0 && time.Since(began) > timeout {
			return in.s.busy(timeout, in.s.repo.store.WallsDir(in.s.repo.ID, in.s.ID))
		}
		if !in.walls.plan.Bare { // else nobody stands there
			if err := in.s.awaitThreshold(ctx, timeout); err != nil {
				return err
			}
		}
		if err := aMoment(ctx); err != nil { // until the keeper knows
			return err
		}
	}
}

func (s *Sandbox) awaitThreshold(ctx context.Context, timeout time.Duration) error {
	passed, err := lock.Occupy(ctx, s.threshold(), timeout)
	if is[*LockTimeoutError](err) {
		return s.busy(timeout, s.threshold())
	}
	if err != nil {
		return err
	}
	return passed.Close()
}

func aMoment(ctx context.Context) error {
	select {
	case <-time.After(2 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// threshold is the directory that whoever opens a room holds. It is made with the layer, and stays.
func (s *Sandbox) threshold() string {
	return filepath.Join(s.repo.store.WallsDir(s.repo.ID, s.ID), "git", "work")
}

func (s *Sandbox) busy(waited time.Duration, held string) error {
	return &BusyError{ID: s.ID, Waited: waited, Holders: proc.Holders(held)}
}

// plan plans the walls, and makes the directories that they need.
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

// around are the walls of a room that we open: nobody is there, for who joins draws none.
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

// goOut leaves the room.
func (in *inside) goOut() error {
	if in.room == nil {
		return nil
	}
	err := in.room.Close()
	in.room = nil
	return err
}

// stepOff leaves the threshold, on which others may wait.
func (in *inside) stepOff() error {
	held := in.threshold
	if in.threshold = nil; held == nil {
		return nil
	}
	return held.Close()
}

// openOrJoin opens a room if nobody has one open.
func (s *Sandbox) openOrJoin(ctx context.Context, occupied *os.File, timeout time.Duration, w proc.Walls) (*proc.Room, error) {
	dir := s.repo.store.WallsDir(s.repo.ID, s.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	label := s.repo.store.InvocationDir(s.repo.ID, s.ID)
	for began := time.Now(); ; {
		held, err := lock.Clear(ctx, dir, 0)
		if err == nil {
			room, err := w.Begin(ctx, label, held, occupied)
			return room, errors.Join(err, held.Close())
		}
		if !is[*LockTimeoutError](err) {
			return nil, err
		}
		room, err := proc.Join(ctx, label)
		switch {
		case err == nil:
			return room, nil
		case !errors.Is(err, proc.ErrNoRoom):
			return nil, err
		case timeout >= 0 && time.Since(began) > timeout:
			return nil, s.busy(timeout, dir)
		}
		if err := aMoment(ctx); err != nil { // somebody opens it, or has just left
			return nil, err
		}
	}
}

// sameWalls refuses to join walls that are weaker than those that were planned: the settings have changed
// since they were built. Else it says which stand.
func (s *Sandbox) sameWalls(room *proc.Room, want confine.Plan) (have confine.Plan, err error) {
	if err := json.Unmarshal(room.Plan, &have); err != nil {
		return have, err
	}
	if weaker := have.Weaker(want); weaker != "" {
		return have, fmt.Errorf("other commands run there behind walls that are older than the settings: %s; wait until they have ended", weaker)
	}
	return have, nil
}
