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

// openAlone is open for somebody who has to have the sandbox to himself until he leaves. It ends nothing: commands that
// run there are a *RunningError. The caller holds the repository lock.
func (s *Sandbox) openAlone(ctx context.Context) (_ *site, leave func(), err error) {
	v, err := s.await(ctx)
	if err != nil {
		return nil, nil, err
	}
	place, err := s.look(v.inside)
	if err != nil {
		v.close()
		return nil, nil, err
	}
	return place, func() {
		if err := place.Close(); err != nil {
			s.repo.warn("%s: %v", s.tree, err)
		}
		v.close()
	}, nil
}

// await waits until nobody is at work in the sandbox, and keeps everybody out: vacate without ending anything.
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
	around, home := s.repo.store.SandboxDir(s.repo.ID, s.ID), s.repo.store.InvocationDir(s.repo.ID, s.ID)
	door, err := lock.Clear(ctx, around, timeout)
	switch {
	case err == nil:
		v.held = append(v.held, door)
	case errors.Is(err, os.ErrNotExist): // what became of it, the record says
	case is[*LockTimeoutError](err):
		return v, s.busy(timeout, around)
	default:
		return v, err
	}
	for began := time.Now(); ; {
		v.inside, err = lock.Clear(ctx, home, 0)
		switch {
		case err == nil:
			v.held = append(v.held, v.inside)
			return v, nil
		case errors.Is(err, os.ErrNotExist):
			return v, &NotFoundError{Kind: "invocation", Query: s.ID}
		case !is[*LockTimeoutError](err):
			return v, err
		case len(proc.Supervisors(home)) > 0:
			return v, &RunningError{ID: s.ID, Programs: proc.Programs(home)}
		case timeout >= 0 && time.Since(began) > timeout: // a put, or who has only just come in
			return v, s.busy(timeout, home)
		}
		if err := aMoment(ctx); err != nil {
			return v, err
		}
	}
}

// bringOutAlone brings out what was done behind the walls and has not come out. Nobody else is in the sandbox. What
// cannot come out would be lost, so it is refused.
func (s *Sandbox) bringOutAlone(ctx context.Context, repo *git.Repo, place *site) error {
	if pending, err := s.pendingInside(place.prims); err != nil || !pending {
		return err
	}
	in, err := s.goInside(ctx, &site{
		Tree: place.Tree, prims: Primitives{Isolation: place.prims.Isolation, Outputs: "none"}, occupied: place.occupied, repo: repo,
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

// alignLayer lets the git behind the walls find the state that was restored outside, and writes down that both sides
// are the same.
func (s *Sandbox) alignLayer(ctx context.Context, restore *git.Restoration, prims Primitives) error {
	if prims.Isolation != isolationOS || !store.IsDir(s.layer()) {
		return nil
	}
	if err := restore.Layer(ctx); err != nil {
		return err
	}
	d := &door{s: s, upper: s.layer()}
	if git.LayeredEntry(d.upper, s.ID) == "" {
		return durable.Remove(d.statePath()) // everything shows through, as in the beginning
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
