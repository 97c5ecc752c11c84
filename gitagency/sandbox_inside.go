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

// nsSession is this process's use of the namespaces of a sandbox.
type inside struct {
	s     *Sandbox
	walls walls
	room  *proc.Room
	door  *door
	dir   *os.File // tree of the sandbox
	end   func()   // stops the proxy

	threshold *os.File // held by the creator of the namespaces until git state is exchanged; nil when joined

	ending  bool   // the caller holds the repository lock and runs the imports itself
	pending bool   // the upper directory has changes that were not imported
	stuck   string // fingerprint of the upper directory when its import failed
}

// enterNamespace builds the walls of the sandbox or joins existing ones, then exchanges git state in both directions.
// If any wall cannot be built, it fails and nothing is run.
func (s *Sandbox) goInside(ctx context.Context, h *site) (*inside, error) {
	in, err := s.approach(ctx, h)
	if err == nil {
		err = in.enter(ctx)
	}
	if err != nil {
		return nil, err
	}
	return in, nil
}

// prepareNamespace does the part of enterNamespace that does not need finished walls; they are built meanwhile.
func (s *Sandbox) approach(ctx context.Context, h *site) (_ *inside, err error) {
	in := &inside{s: s, end: func() {}, ending: h.repo != nil}
	defer func() {
		if err != nil {
			err = in.stayOut(ctx, err)
		}
	}()
	if in.dir, _, err = h.Directory("."); err != nil {
		return nil, err
	}
	if err = in.reach(ctx, h); err != nil {
		return nil, err
	}
	if in.walls.plan.Bare {
		return in, nil
	}
	if in.door, err = s.door(in.walls); err != nil {
		return nil, err
	}
	if in.ending {
		in.door.repo, in.door.patience = h.repo, patienceAtTheEnd
	}
	if in.threshold != nil { // otherwise other commands are using both sides
		in.pending, err = in.door.pending()
	}
	return in, err
}

// enter waits for the walls and exchanges git state.
func (in *inside) enter(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = in.stayOut(ctx, err)
		}
	}()
	if err := in.room.Stand(ctx); err != nil {
		return err
	}
	if in.ending { // the caller imports everything itself
		return nil
	}
	if in.threshold != nil {
		if in.pending { // by a command whose git-agency process was killed
			in.takeOut(ctx)
		}
		if in.stuck == "" { // an export would overwrite an index that is not imported
			if err := in.door.in(ctx, in.room, in.dir); err != nil {
				if context.Cause(ctx) != nil { // the export may be incomplete; the next process repeats it
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

// abortEnter releases everything after a failure and returns err as a *SetupError.
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

// importPending imports git state from behind the walls of a sandbox that was not imported yet: of commands that
// still run, or whose git-agency process was killed.
func (s *Sandbox) bringOut(ctx context.Context) error {
	_, err := s.broughtOut(ctx)
	return err
}

// tryImportPending is importPending that also reports whether something could not be imported, after a warning. Use
// it where an incomplete state must not be taken for the current one.
func (s *Sandbox) broughtOut(ctx context.Context) (incomplete bool, err error) {
	h, err := s.open(ctx)
	if err != nil {
		return false, err
	}
	defer h.close()
	if pending, err := s.pendingInside(h.prims); err != nil || !pending {
		return false, err
	}
	in, err := s.goInside(ctx, h)
	if err != nil {
		return false, notExec(err)
	}
	in.leave(ctx, nil) // imports before it leaves
	return in.stuck != "", nil
}

// hasPendingImport reports whether git state behind the walls was not imported yet.
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

// importForDiscard imports everything that only the git directory behind the walls has, for a sandbox that is about
// to be removed. The caller holds the repository lock in repo and the exclusive lock of the sandbox in held. Content
// of the sandbox that cannot be imported does not prevent the removal; a failure of this machine does.
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
	for _, importStep := range []func(context.Context, *proc.Room, *os.File) error{in.door.out, in.door.rest} {
		err := importStep(ctx, in.room, in.dir)
		switch {
		case err == nil || is[*apartError](err): // importRemaining includes the diverged commits
		case in.door.theirFault(err):
			s.repo.warn("sandbox %s: not all that git had inside is kept: %v", s.ID, err)
		default:
			return errors.Join(fmt.Errorf("what git has inside cannot be kept: %w", err), in.close())
		}
	}
	return in.close()
}

// asImportError rewrites a *SetupError: no command was asked for, only an import.
func notExec(err error) error {
	var setup *SetupError
	if errors.As(err, &setup) {
		return fmt.Errorf("bring out what was done behind the walls: %w", setup.Err)
	}
	return err
}

// importAndWarn imports git state. Anything that cannot be imported stays in the upper directory; a warning says so.
func (in *inside) takeOut(ctx context.Context) {
	before, _ := in.door.layer() // on error it is empty, and the import is tried again
	// A discard ends the namespaces while it holds the repository lock and waits for us: stop the import then.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ns := in.room
	go func() {
		for ctx.Err() == nil {
			if ns.EndedWithin(50 * time.Millisecond) {
				cancel()
			}
		}
	}()
	err := in.door.out(ctx, in.room, in.dir)
	if in.room.EndedWithin(0) { // a discard has ended the namespaces and does the import
		return
	}
	if err != nil && !is[*EndedError](err) {
		reported := in.stuck != "" && is[*insideError](err) // already reported before the command began
		if in.stuck = before; reported {
			return
		}
		what := "its commits stay"
		if is[*git.LockedError](err) { // of the index, which is imported last
			what = "what is staged stays"
		}
		in.s.repo.warn("sandbox %s: %s inside for now: %v", in.s.ID, what, err)
	}
}

// leave imports git state and leaves the namespaces. If force is closed it stops; the next command then does the
// import.
func (in *inside) leave(ctx context.Context, force <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-force:
			cancel()
		case <-done:
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

// close leaves the namespaces. The setup lock is released last, so that no other process joins and keeps namespaces
// alive in which the git state was not exchanged.
func (in *inside) close() (err error) {
	if in.end != nil {
		in.end()
	}
	if in.dir != nil {
		err = in.dir.Close()
	}
	return errors.Join(err, in.goOut(), in.stepOff())
}

// discardGitTimeout bounds one script while the repository lock is held.
const patienceAtTheEnd = 5 * time.Second
