package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Lock writes the new files, elsewhere, and then keeps every git from writing the person's index. If that has
// changed since it was looked at, everything is looked at again. The error is an *UnderWayError when somebody else has
// locked it.
func (x *Advancing) Lock(ctx context.Context) (err error) {
	if err := x.step(0, "lock"); err != nil {
		return err
	}
	defer func() { x.went(err) }()
	x.Wake(ctx)
	if x.seat == nil {
		return nil
	}
	if x.stage, err = x.seat.newStage(ctx); err != nil {
		return err
	}
	if x.draft, err = x.repo.draftHeld(ctx, x.a, x.seat.index.perm); err != nil {
		return err
	}
	if err := x.at("locked"); err != nil {
		return err
	}
	stamp := ""
	if fi, err := os.Lstat(x.a.index()); err == nil {
		stamp = durable.Stamp(fi)
	}
	if stamp == x.seat.index.stamp {
		return x.repo.onBranch(x.a)
	}
	now, err := x.repo.look(ctx, x.a, true)
	if err != nil {
		return err
	}
	x.seat = now
	if err := x.stage.remove(); err != nil {
		return err
	}
	x.stage, err = x.seat.newStage(ctx)
	return err
}

// draftHeld begins an index for a person's worktree, and locks the one that is there. A git that has it locked is waited
// for, but not for long.
func (r *Repo) draftHeld(ctx context.Context, a Advance, perm fs.FileMode) (*IndexDraft, error) {
	f, err := os.OpenFile(a.index()+draftSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s: one that was begun before has not been finished", a.index()+draftSuffix)
	}
	if err != nil {
		return nil, err
	}
	d := &IndexDraft{index: a.index(), file: f}
	if perm != 0 {
		err = f.Chmod(perm)
	}
	if err == nil {
		waitErr := r.waiting.until(ctx, func() bool { err = d.Lock(); return !errors.As(err, new(*LockedError)) })
		err = errors.Join(waitErr, err)
	}
	if err != nil {
		err = errors.Join(err, d.Drop())
		if errors.As(err, new(*LockedError)) && context.Cause(ctx) == nil {
			err = &UnderWayError{Tree: a.Tree, What: "index.lock"}
		}
		return nil, err
	}
	return d, nil
}

// Files puts the new files in their places, and writes the new index beside the old one. An error is an *OverlapsError
// where somebody has changed something since it was looked at; whoever gets one calls Undo.
func (x *Advancing) Files(ctx context.Context) (err error) {
	if err := x.step(2, "files"); err != nil {
		return err
	}
	defer func() { x.went(err) }()
	if x.seat == nil {
		return nil
	}
	if err := x.stage.writePlan(); err != nil {
		return err
	}
	if err := x.stage.move(ctx, x.at); err != nil {
		return err
	}
	if err := x.at("moved"); err != nil {
		return err
	}
	index, err := x.index()
	if err != nil {
		return err
	}
	if err := index.writeOut(x.draft.file); err != nil {
		return err
	}
	return x.stage.stillAside(ctx)
}

// writeOut writes an index as old as the one that it follows: of what has changed since, git does not know whether it has
// seen it, and looks at it again. That is so of every new file too.
func (y *revision) writeOut(f *os.File) error {
	if err := y.write(f); err != nil {
		return err
	}
	if !y.at.IsZero() {
		if err := os.Chtimes(f.Name(), y.at, y.at); err != nil {
			return err
		}
	}
	return f.Sync()
}

// index is the new index.
func (x *Advancing) index() (*revision, error) {
	w, err := openWalker(x.a.Tree)
	if err != nil {
		return nil, err
	}
	defer w.close()
	seals := map[string]*seal{}
	for _, m := range x.stage.plan.Moves {
		seals[string(m.Path)] = m.Is
	}
	var changes []replacement
	for _, t := range x.seat.touched {
		c := replacement{name: t.path}
		if t.is != noFile {
			mode, _ := strconv.ParseUint(t.newMode, 8, 32)
			c.mode, c.oid, c.stat = uint32(mode), mustHex(t.newOID), unread(uint32(mode))
		}
		if t.is == aFile {
			c.skipped = x.stage.entries[t.path].skipped
		}
		if t.is == aModule {
			c.skipped = t.entry.skipped
		}
		if is := seals[t.path]; is != nil {
			var st unix.Stat_t
			fd, err := w.open(path.Dir(t.path))
			if err == nil {
				err = unix.Fstatat(fd, path.Base(t.path), &st, unix.AT_SYMLINK_NOFOLLOW)
			}
			if err == nil && sealOf(&st) == *is { // else somebody has written to it: git will see that
				c.stat = statOf(&st, c.mode)
			}
		}
		changes = append(changes, c)
	}
	slices.SortFunc(changes, inOrder)
	return x.seat.index.with(changes), nil
}

// Publish puts the new index in its place; the lock goes with that. What else is left of it is on its way out until Clear.
func (x *Advancing) Publish(ctx context.Context) error {
	if err := x.step(4, "publish"); err != nil {
		return err
	}
	if x.seat == nil {
		x.finished = true
		return x.settled()
	}
	late := x.settled() // first: who finds a new index, and the refs where they were, undoes half of it
	if err := x.draft.Publish(); err != nil {
		return errors.Join(late, err)
	}
	x.finished = true
	x.clearing = proc.Meanwhile(func() (struct{}, error) {
		err := errors.Join(durable.SyncDir(x.a.GitDir), x.draft.file.Close())
		if err == nil {
			err = x.stage.remove()
		}
		return struct{}{}, err
	})
	return late
}

// settled waits until it lasts that the refs have moved, and says all that went wrong since.
func (x *Advancing) settled() error {
	_, err := x.syncing()
	return errors.Join(x.late, err)
}

// Clear waits until nothing is left of what was needed.
func (x *Advancing) Clear() error {
	if x.clearing == nil {
		return nil
	}
	_, err := x.clearing()
	x.clearing = nil
	return err
}
