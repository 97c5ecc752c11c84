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

// Lock writes the new files to a staging directory, and then locks the worktree's index against every git. If the index
// has changed since Begin read it, Lock inspects the worktree again. The error is an *OperationInProgressError if another
// process holds the index lock.
func (tx *Advancing) Lock(ctx context.Context) (err error) {
	if err := tx.step(0, "lock"); err != nil {
		return err
	}
	defer func() { tx.went(err) }()
	tx.Wake(ctx)
	if tx.seat == nil {
		return nil
	}
	if tx.stage, err = tx.seat.newStage(ctx); err != nil {
		return err
	}
	if tx.draft, err = tx.repo.draftHeld(ctx, tx.a, tx.seat.index.perm); err != nil {
		return err
	}
	if err := tx.at("locked"); err != nil {
		return err
	}
	stamp := ""
	if fi, err := os.Lstat(tx.a.index()); err == nil {
		stamp = durable.Stamp(fi)
	}
	if stamp == tx.seat.index.stamp {
		return tx.repo.onBranch(tx.a)
	}
	now, err := tx.repo.look(ctx, tx.a, true)
	if err != nil {
		return err
	}
	tx.seat = now
	if err := tx.stage.remove(); err != nil {
		return err
	}
	tx.stage, err = tx.seat.newStage(ctx)
	return err
}

// lockCheckoutIndex creates the draft of the worktree's new index and locks the present one. It waits only briefly for a
// git that holds the lock, which may be stale.
func (r *Repo) draftHeld(ctx context.Context, u Advance, perm fs.FileMode) (*IndexDraft, error) {
	f, err := os.OpenFile(u.index()+draftSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s: one that was begun before has not been finished", u.index()+draftSuffix)
	}
	if err != nil {
		return nil, err
	}
	d := &IndexDraft{index: u.index(), file: f}
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
			err = &UnderWayError{Tree: u.Tree, What: "index.lock"}
		}
		return nil, err
	}
	return d, nil
}

// MoveFiles moves the new files into the worktree and writes the new index beside the old one. The error is an
// *OverlapsError if a file has changed since it was inspected. After any error the caller must call Undo.
func (tx *Advancing) Files(ctx context.Context) (err error) {
	if err := tx.step(2, "files"); err != nil {
		return err
	}
	defer func() { tx.went(err) }()
	if tx.seat == nil {
		return nil
	}
	if err := tx.stage.writePlan(); err != nil {
		return err
	}
	if err := tx.stage.move(ctx, tx.at); err != nil {
		return err
	}
	if err := tx.at("moved"); err != nil {
		return err
	}
	index, err := tx.index()
	if err != nil {
		return err
	}
	if err := index.writeOut(tx.draft.file); err != nil {
		return err
	}
	return tx.stage.stillAside(ctx)
}

// writeSynced writes the index and gives it the mtime of the index it replaces. Files modified since then, every new file
// included, are racy to git, which re-reads them instead of trusting their stat data.
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

// composeIndex returns the new index: the old one with the changed paths replaced, and stat data of the moved files.
func (tx *Advancing) index() (*revision, error) {
	w, err := openWalker(tx.a.Tree)
	if err != nil {
		return nil, err
	}
	defer w.close()
	seals := map[string]*seal{}
	for _, m := range tx.stage.plan.Moves {
		seals[string(m.Path)] = m.Is
	}
	var changes []replacement
	for _, t := range tx.seat.touched {
		c := replacement{name: t.path}
		if t.is != noFile {
			mode, _ := strconv.ParseUint(t.newMode, 8, 32)
			c.mode, c.oid, c.stat = uint32(mode), mustHex(t.newOID), unread(uint32(mode))
		}
		if t.is == aFile {
			c.skipped = tx.stage.entries[t.path].skipped
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
			if err == nil && sealOf(&st) == *is { // else another process has written to it: without stat data git re-reads it
				c.stat = statOf(&st, c.mode)
			}
		}
		changes = append(changes, c)
	}
	slices.SortFunc(changes, inOrder)
	return tx.seat.index.with(changes), nil
}

// Publish renames the new index into place, which also releases the index lock. It removes the staging directory in the
// background; WaitCleanup waits for that.
func (tx *Advancing) Publish(ctx context.Context) error {
	if err := tx.step(4, "publish"); err != nil {
		return err
	}
	if tx.seat == nil {
		tx.finished = true
		return tx.settled()
	}
	late := tx.settled() // first: a Recover that found the new index and the old refs would undo half of the update
	if err := tx.draft.Publish(); err != nil {
		return errors.Join(late, err)
	}
	tx.finished = true
	tx.clearing = proc.Meanwhile(func() (struct{}, error) {
		err := errors.Join(durable.SyncDir(tx.a.GitDir), tx.draft.file.Close())
		if err == nil {
			err = tx.stage.remove()
		}
		return struct{}{}, err
	})
	return late
}

// waitDurable waits until the moved refs are durable, and returns all errors since they moved.
func (tx *Advancing) settled() error {
	_, err := tx.syncing()
	return errors.Join(tx.late, err)
}

// WaitCleanup waits until the staging directory is removed.
func (tx *Advancing) Clear() error {
	if tx.clearing == nil {
		return nil
	}
	_, err := tx.clearing()
	tx.clearing = nil
	return err
}
