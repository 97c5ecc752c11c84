package gitagency

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
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

	threshold *os.File // held by who opened the room, while that brings over what only one side has

	ending  bool   // the sandbox is about to go
	pending bool   // something has not come out yet
	stuck   string // fingerprint of a layer that did not come out
}

// goInside builds the walls, or joins those who are behind them already, and brings what is on one side only
// to the other. Without all of them nothing is run.
func (s *Sandbox) goInside(ctx context.Context, site *site) (*inside, error) {
	in, err := s.approach(ctx, site)
	if err == nil {
		err = in.enter(ctx)
	}
	if err != nil {
		return nil, err
	}
	return in, nil
}

// approach is goInside as far as it goes while the walls are being built.
func (s *Sandbox) approach(ctx context.Context, site *site) (_ *inside, err error) {
	in := &inside{s: s, end: func() {}, ending: site.repo != nil}
	defer func() {
		if err != nil {
			err = in.stayOut(ctx, err)
		}
	}()
	if in.dir, _, err = site.Directory("."); err != nil {
		return nil, err
	}
	if err = in.reach(ctx, site); err != nil {
		return nil, err
	}
	if in.walls.plan.Bare {
		return in, nil
	}
	if in.door, err = s.door(in.walls); err != nil {
		return nil, err
	}
	if in.ending {
		in.door.repo, in.door.patience = site.repo, patienceAtTheEnd
	}
	if in.threshold != nil { // else both sides are in use
		in.pending, err = in.door.pending()
	}
	return in, err
}

// enter goes in once the walls stand.
func (in *inside) enter(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = in.stayOut(ctx, err)
		}
	}()
	if err := in.room.Stand(ctx); err != nil {
		return err
	}
	if in.ending { // and brings everything out itself
		return nil
	}
	if in.threshold != nil {
		if in.pending { // what was done before somebody was killed
			in.takeOut(ctx)
		}
		if in.stuck == "" { // else what is staged there would be lost
			if err := in.door.in(ctx, in.room, in.dir); err != nil {
				if context.Cause(ctx) != nil { // it may be half-way; who comes next begins anew
					return err
				}
				in.s.repo.warn("sandbox %s: what was changed outside is not seen inside: %v", in.s.ID, err)
			}
		}
	}
	if in.room.Opened {
		if err := errors.Join(in.room.LetIn(), in.stepOff()); err != nil {
			return err
		}
	}
	in.end, err = in.s.outputs(ctx, in.room, &in.walls)
	return err
}

// stayOut goes away again because of err, and says why.
func (in *inside) stayOut(ctx context.Context, err error) error {
	err = errors.Join(err, in.close())
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if is[*proc.WallError](err) {
		err = errors.New(in.s.repo.whyNot(ctx, err))
	}
	return &SetupError{ID: in.s.ID, Err: err}
}

// bringOut brings out what was done behind the walls of a sandbox, where that has not happened yet: by
// commands that still run, or whose tool was killed.
func (s *Sandbox) bringOut(ctx context.Context) error {
	_, err := s.broughtOut(ctx)
	return err
}

// broughtOut is bringOut for who must not go by less than there is: some of it may have stayed inside, as was warned of.
func (s *Sandbox) broughtOut(ctx context.Context) (stuck bool, err error) {
	site, err := s.open(ctx)
	if err != nil {
		return false, err
	}
	defer site.close()
	if pending, err := s.pendingInside(site.prims); err != nil || !pending {
		return false, err
	}
	in, err := s.goInside(ctx, site)
	if err != nil {
		return false, notExec(err)
	}
	in.leave(ctx, nil) // and in doing so brings it out
	return in.stuck != "", nil
}

// pendingInside reports whether something was done behind the walls that has not come out.
func (s *Sandbox) pendingInside(prims Primitives) (bool, error) {
	if prims.Isolation != isolationOS {
		return false, nil
	}
	d, err := s.door(walls{})
	if err != nil {
		return false, err
	}
	return d.pending()
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
		case err == nil || is[*apartError](err): // the rest has what is on this side too
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
		told := in.stuck != "" && is[*insideError](err) // before the command began
		if in.stuck = before; told {
			return
		}
		what := "its commits stay"
		if is[*git.LockedError](err) { // which is that of the index, the last to come out
			what = "what is staged stays"
		}
		in.s.repo.warn("sandbox %s: %s inside for now: %v", in.s.ID, what, err)
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
		now, err := in.door.layer()
		if err != nil {
			in.s.repo.warn("sandbox %s: %v", in.s.ID, err)
		}
		if err != nil || now != in.door.state.Layer && (in.stuck == "" || now != in.stuck) {
			in.takeOut(ctx)
		}
	}
	if err := in.close(); err != nil {
		in.s.repo.warn("sandbox %s: %v", in.s.ID, err)
	}
}

// close leaves the room. Who still stands on the threshold leaves that last: nobody shall get in behind them, who
// would keep a room open in which the two sides were not brought together.
func (in *inside) close() (err error) {
	if in.end != nil {
		in.end()
	}
	if in.dir != nil {
		err = in.dir.Close()
	}
	return errors.Join(err, in.goOut(), in.stepOff())
}

// patienceAtTheEnd is for a sandbox that goes while everybody else waits.
const patienceAtTheEnd = 5 * time.Second
