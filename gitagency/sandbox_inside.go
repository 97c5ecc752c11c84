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
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// inside is a room of the sandbox that we are in.
type inside struct {
	s     *Sandbox
	walls walls
	room  *proc.Room
	door  *door
	dir   *os.File // the tree
	end   func()   // of the way out
	stuck string   // fingerprint of a layer that did not come out

	threshold *os.File // held by who opened the room, while that brings over what only one side has
}

// goInside builds the walls, or joins those who are behind them already, and brings what is on one side only
// to the other. Without all of them nothing is run.
func (s *Sandbox) goInside(ctx context.Context, site *site) (_ *inside, err error) {
	in := &inside{s: s, end: func() {}}
	defer func() {
		if err == nil {
			return
		}
		if closeErr := in.close(); closeErr != nil {
			err = errors.Join(err, closeErr)
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
			return
		}
		if is[*proc.WallError](err) {
			err = errors.New(s.repo.whyNot(ctx, err))
		}
		err = &SetupError{ID: s.ID, Err: err}
	}()
	if in.dir, _, err = site.Directory("."); err != nil {
		return nil, err
	}
	if err = in.enter(ctx, site); err != nil {
		return nil, err
	}
	if in.walls.plan.Bare {
		in.end, err = s.outputs(ctx, in.room, &in.walls)
		return in, err
	}
	if in.door, err = s.door(in.walls); err != nil {
		return nil, err
	}
	if site.repo != nil { // it is about to go
		in.door.repo, in.door.patience = site.repo, patienceAtTheEnd
	}
	if in.threshold != nil { // else both sides are in use
		pending, err := in.door.pending()
		if err != nil {
			return nil, err
		}
		if site.repo != nil {
			return in, nil // and brings everything out itself
		}
		if pending { // what was done before somebody was killed
			in.takeOut(ctx)
		}
		if in.stuck == "" { // else what is staged there would be lost
			if err := in.door.in(ctx, in.room, in.dir); err != nil {
				s.repo.warn("sandbox %s: what was changed outside is not seen inside: %v", s.ID, err)
			}
		}
		if err := in.letIn(); err != nil {
			return nil, err
		}
	}
	in.end, err = s.outputs(ctx, in.room, &in.walls)
	return in, err
}

// bringOut brings out what was done behind the walls of a sandbox, where that has not happened yet: by
// commands that still run, or whose tool was killed.
func (s *Sandbox) bringOut(ctx context.Context) error {
	site, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer site.close()
	if site.prims.Isolation != isolationOS {
		return nil
	}
	d, err := s.door(walls{})
	if err != nil {
		return err
	}
	if pending, err := d.pending(); err != nil || !pending {
		return err
	}
	in, err := s.goInside(ctx, site)
	if err != nil {
		return notExec(err)
	}
	in.leave(ctx, nil) // and in doing so brings it out
	return nil
}

// emptyLayer brings out of a sandbox that is about to go whatever only the git behind its walls knows. repo
// holds the repository lock, and held nobody else in the sandbox. A sandbox that does not let that happen
// cannot keep itself from going; a machine that does not, can.
func (s *Sandbox) emptyLayer(ctx context.Context, repo *git.Repo, prims Primitives, held *os.File) error {
	if prims.Isolation != isolationOS || !store.IsDir(s.tree) || held == nil {
		return nil
	}
	d, err := s.door(walls{})
	if err != nil {
		s.repo.warn("sandbox %s: %v", s.ID, err)
	}
	if layer, err := d.layer(); err != nil || layer == "" {
		return err
	}
	tree, err := guard.OpenTree(s.tree)
	if err != nil {
		return err
	}
	defer tree.Close()
	if err := checkSandbox(tree); err != nil {
		return err
	}
	in, err := s.goInside(ctx, &site{Tree: tree, prims: Primitives{Isolation: prims.Isolation, Outputs: "none"}, occupied: held, repo: repo})
	if err != nil {
		return notExec(err)
	}
	for _, bring := range []func(context.Context, *proc.Room, *os.File) error{in.door.out, in.door.rest} {
		err := bring(ctx, in.room, in.dir)
		switch {
		case err == nil:
		case in.door.theirFault(err):
			s.repo.warn("sandbox %s: not all that git had inside is kept: %v", s.ID, err)
		default:
			return errors.Join(fmt.Errorf("what git has inside cannot be kept: %w", err), in.close())
		}
	}
	return in.close()
}

// notExec says of walls that could not be built what does not sound as if a command had been asked for.
func notExec(err error) error {
	var setup *SetupError
	if errors.As(err, &setup) {
		return fmt.Errorf("bring out what was done behind the walls: %w", setup.Err)
	}
	return err
}

// takeOut brings out what was done inside. What stays there is not lost, and said.
func (in *inside) takeOut(ctx context.Context) {
	before, _ := in.door.layer() // where it cannot be told, it is tried again
	// Who ends the sandbox has the repository to itself meanwhile, and waits for us.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	room := in.room
	go func() {
		for ctx.Err() == nil {
			if room.EndedWithin(50 * time.Millisecond) {
				cancel()
			}
		}
	}()
	err := in.door.out(ctx, in.room, in.dir)
	if in.room.EndedWithin(0) { // somebody wants the sandbox to go, and sees to this
		return
	}
	if err != nil && !is[*EndedError](err) {
		in.stuck = before
		in.s.repo.warn("sandbox %s: its commits stay inside for now: %v", in.s.ID, err)
	}
}

// leave brings out what was done inside, and goes. Who is in a hurry finds it there the next time.
func (in *inside) leave(ctx context.Context, hurry <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	gone := make(chan struct{})
	defer close(gone)
	go func() {
		select {
		case <-hurry:
			cancel()
		case <-gone:
		}
	}()
	if in.door != nil {
		pending, err := in.door.pending()
		if err != nil {
			in.s.repo.warn("sandbox %s: %v", in.s.ID, err)
		}
		if now, err := in.door.layer(); pending && (err != nil || in.stuck == "" || now != in.stuck) {
			in.takeOut(ctx)
		}
	}
	if err := in.close(); err != nil {
		in.s.repo.warn("sandbox %s: %v", in.s.ID, err)
	}
}

func (in *inside) close() error {
	err := in.letIn()
	if in.end != nil {
		in.end()
	}
	if in.dir != nil {
		err = errors.Join(err, in.dir.Close())
	}
	return errors.Join(err, in.goOut())
}

// goOut leaves the room.
func (in *inside) goOut() error {
	if in.room == nil {
		return nil
	}
	err := errors.Join(in.room.Close(), in.tidyUp())
	in.room = nil
	return err
}

// tidyUp removes what the kernel leaves of a layer when nobody uses it any more: directories that only few
// have permission to remove, and whose content the next one would have to. Who has opened the room again since
// works in these very directories.
func (in *inside) tidyUp() (err error) {
	if !in.room.Emptied {
		return nil
	}
	held, err := lock.Clear(context.Background(), in.s.repo.store.WallsDir(in.s.repo.ID, in.s.ID), 0)
	if is[*LockTimeoutError](err) {
		return nil // and sees to it when they leave
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	for _, l := range in.walls.plan.Layers {
		err = errors.Join(err, durable.RemoveTree(filepath.Join(l.Work, "work")))
	}
	return err
}

// patienceAtTheEnd is for a sandbox that goes while everybody else waits.
const patienceAtTheEnd = 5 * time.Second

// enter opens the room of the sandbox, or joins those who are in it. Who opens it stands on the threshold until
// they let others in; who joins waits for that.
func (in *inside) enter(ctx context.Context, site *site) (err error) {
	s := in.s
	timeout, err := s.repo.lockTimeout()
	if err != nil {
		return err
	}
	threshold := filepath.Join(s.repo.store.WallsDir(s.repo.ID, s.ID), "git", "work") // which is made with the layer, and stays
	plan := sync.OnceValues(func() (walls, error) {
		w, err := s.planWalls(site.prims)
		if err = s.repo.blame(err); err == nil && !w.plan.Bare {
			err = os.MkdirAll(s.caches(), 0o700)
		}
		if err == nil {
			err = s.makeLayers(ctx, w.plan)
		}
		return w, err
	})
	around := proc.Walls{Network: site.prims.Outputs != outputsOpen, Draw: func() ([]byte, error) {
		w, err := plan()
		if err != nil {
			return nil, err
		}
		if !w.plan.Bare { // nobody is there: who opens a room draws its walls, and who joins does not
			if in.threshold, err = lock.Clear(ctx, threshold, timeout); err != nil {
				return nil, err
			}
			upper := filepath.Join(filepath.Dir(threshold), "upper")
			git.Uncover(upper)
			if err := s.repo.git.Readdress(upper, s.ID); err != nil {
				s.repo.warn("sandbox %s: git inside still looks for it where it was before it was moved: %v", s.ID, err)
			}
		}
		return json.Marshal(w.plan)
	}}
	for began := time.Now(); ; {
		if in.room, err = s.openOrJoin(ctx, site.occupied, timeout, around); err != nil {
			return err
		}
		if in.walls, err = plan(); err != nil || in.room.Opened {
			return err
		}
		if err := s.sameWalls(in.room, in.walls.plan); err != nil || in.walls.plan.Bare {
			return err
		}
		passed, err := lock.Occupy(ctx, threshold, 0)
		if err == nil {
			return passed.Close()
		}
		if !is[*LockTimeoutError](err) {
			return err
		}
		// It is waited for outside: if who opened the room is killed, the room is to end with them, so that
		// the next one to open it takes it up.
		if err := in.goOut(); err != nil {
			return err
		}
		if timeout >= 0 && time.Since(began) > timeout {
			return &BusyError{ID: s.ID, Waited: timeout, Holders: proc.Holders(threshold)}
		}
		switch passed, err = lock.Occupy(ctx, threshold, timeout); {
		case err == nil:
			err = passed.Close()
		case is[*LockTimeoutError](err):
			err = &BusyError{ID: s.ID, Waited: timeout, Holders: proc.Holders(threshold)}
		}
		if err != nil {
			return err
		}
	}
}

// letIn lets those in who join the room that we have opened.
func (in *inside) letIn() error {
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
			room, err := w.Open(ctx, label, held, occupied)
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
			return nil, &BusyError{ID: s.ID, Waited: timeout, Holders: proc.Holders(dir)}
		}
		select { // somebody opens it, or has just left
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// sameWalls refuses to join walls that are weaker than those that were planned: the settings have changed
// since they were built.
func (s *Sandbox) sameWalls(room *proc.Room, want confine.Plan) error {
	var have confine.Plan
	if err := json.Unmarshal(room.Plan, &have); err != nil {
		return err
	}
	if weaker := have.Weaker(want); weaker != "" {
		return fmt.Errorf("other commands run there behind walls that are older than the settings: %s; wait until they have ended", weaker)
	}
	return nil
}
