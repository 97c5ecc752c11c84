package upload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
)

// Recover undoes puts that were killed halfway. Without any it costs one directory listing. Programs that work in the
// tree may have forged everything that it reads, so it does nothing that they could not do themselves: it moves and
// removes files inside of the tree, by allowed names. Anything that does not look like a stage was forged, and is
// removed or ignored; no forgery can make Recover fail. It waits up to timeout for a put in progress (0: not at all,
// negative: for ever); then the error is a *lock.TimeoutError. If files cannot be restored, the error is an
// *IncompleteUndoError.
func Recover(ctx context.Context, to Target, timeout time.Duration) error {
	p := newPutOp(to)
	if err := p.openAgencyDir(); err != nil {
		return errors.Join(ignoreMissing(err), p.close()) // without .agency there was no put
	}
	stages, err := p.listStages()
	if len(stages) > 0 && err == nil {
		if err = p.lockMoves(ctx, timeout); err == nil {
			err = p.recoverStages(ctx)
		}
	}
	return errors.Join(err, p.close())
}

// Quiesce is Recover that keeps puts from moving files until release is called; release is never nil. Until then the
// tree contains each put completely or not at all, also with an *IncompleteUndoError, except for the files that it
// reports.
func Quiesce(ctx context.Context, to Target, timeout time.Duration) (release func() error, err error) {
	p := newPutOp(to)
	if err := p.openAgencyDir(); err != nil {
		return p.close, ignoreMissing(err) // without .agency there can be no put
	}
	if err := p.lockMoves(ctx, timeout); err != nil {
		return p.close, err
	}
	return p.close, p.recoverStages(ctx)
}

// IncompleteUndoError reports a killed put that could not be undone completely.
type IncompleteUndoError struct {
	Stage string // path of its stage
	Files int    // number of replaced files that are still in the stage
	Err   error  // cause
}

func (e *IncompleteUndoError) Error() string {
	return fmt.Sprintf("an interrupted put cannot be undone; the files that it replaced are still in %s (files: %d): %v", e.Stage, e.Files, e.Err)
}

func (e *IncompleteUndoError) Unwrap() error { return e.Err }

// InterruptedPut is a killed put that was not undone yet.
type InterruptedPut struct {
	Stage         string // path of its stage
	HoldsReplaced bool   // the stage holds replaced files
}

// FindInterrupted lists the puts that Recover would undo. It changes nothing and does not wait: while a put is moving
// files, it returns an empty list.
func FindInterrupted(ctx context.Context, to Target) (found []InterruptedPut, err error) {
	p := newPutOp(to)
	defer func() { err = errors.Join(err, p.close()) }()
	if p.top, err = to.Tree.OpenTop(); err != nil {
		return nil, err
	}
	if p.agencyDir, err = p.top.OpenDir(guard.AgencyDir); err != nil {
		return nil, ignoreMissing(err)
	}
	stages, err := p.listStages()
	if len(stages) == 0 || err != nil {
		return nil, err
	}
	var alive *lock.TimeoutError
	if err := p.tryLockMoves(ctx); errors.As(err, &alive) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range stages {
		there := InterruptedPut{Stage: path.Join(to.Tree.Path, guard.AgencyDir, name)}
		stage, err := p.agencyDir.OpenDir(name)
		if errors.Is(err, fs.ErrPermission) { // entering it would need a chmod
			there.HoldsReplaced = !strings.HasPrefix(name, gonePrefix)
			found = append(found, there)
			continue
		}
		if err != nil {
			errs = append(errs, ignoreMissing(err))
			continue
		}
		held, alive, err := p.lockDeadStage(ctx, name)
		if err == nil && !alive {
			there.HoldsReplaced = !strings.HasPrefix(name, gonePrefix) && countReplaced(ctx, stage) > 0
			found = append(found, there)
		}
		if held != nil {
			err = errors.Join(err, held.Close())
		}
		errs = append(errs, err, stage.Close())
	}
	return found, errors.Join(errs...)
}

// RescueReplaced moves the files that killed puts had replaced, and that Recover could not restore, to the top of the
// tree, into one directory per put. It returns the number of files and the directories. It is for a tree that is
// about to be removed, of which everything but .agency is saved.
func RescueReplaced(ctx context.Context, to Target) (files int, dirs []string, err error) {
	p := newPutOp(to)
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.openAgencyDir(); err != nil {
		return 0, nil, ignoreMissing(err)
	}
	stages, err := p.listStages()
	errs := []error{err}
	for _, name := range stages {
		if strings.HasPrefix(name, gonePrefix) {
			continue
		}
		errs = append(errs, p.withDeadStage(ctx, name, func(stage *guard.DirHandle) error {
			n := countReplaced(ctx, stage)
			if n == 0 {
				return nil
			}
			dir := "replaced-by-" + name
			if err := p.top.WithWriteAccess(func() error { return stage.MoveAs(oldDirName, p.top, dir) }); err != nil {
				return err
			}
			files, dirs = files+n, append(dirs, dir)
			return nil
		}))
	}
	return files, dirs, errors.Join(errs...)
}

// undoPlaced undoes the moves made so far.
func (p *putOp) undoPlaced(ctx context.Context) error {
	err := errors.Join(p.removeCreated(ctx, p.planEntries()), p.restoreReplaced(ctx, p.oldDir))
	p.keepStage = err != nil
	return err
}

// planEntries returns the entries of plan.json.
func (p *putOp) planEntries() []createdEntry {
	made := make([]createdEntry, 0, len(p.created))
	for _, n := range p.created {
		made = append(made, createdEntry{Path: n.path, Dir: n.isDir, OwnerRestricted: n.ownerRestricted(), identity: n.identity})
	}
	return made
}

// identity tells whether a file is still the one that was put. A file that was modified or replaced since then is not
// removed by undo.
type identity struct {
	Device   uint64 `json:"dev"`
	Inode    uint64 `json:"ino"`
	Modified int64  `json:"mtime,omitempty"` // in nanoseconds; not set for directories, where it means little
}

func identify(fi guard.Info) identity {
	id := identity{Device: fi.Device, Inode: fi.Inode}
	if !fi.Mode.IsDir() {
		id.Modified = fi.Modified.UnixNano()
	}
	return id
}

// removeCreated removes created files and directories, in reverse order, if they are unchanged. Directories that hold
// other files stay.
func (p *putOp) removeCreated(ctx context.Context, made []createdEntry) error {
	for _, e := range made {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if e.OwnerRestricted {
			// A failure shows up when the directory is emptied.
			_ = p.withCreated(e, func(in *guard.DirHandle, name string) error { return in.GrantOwnerAccess(name) })
		}
	}
	var errs []error
	for _, e := range slices.Backward(made) {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		errs = append(errs, p.withCreated(e, func(in *guard.DirHandle, name string) error {
			err := in.WithWriteAccess(func() error { return in.Remove(name) })
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !(e.Dir && isNotEmptyError(err)) {
				return withPath("remove", e.Path, err)
			}
			return nil
		}))
	}
	return errors.Join(errs...)
}

// withCreated calls do for a created file or directory, if it is still there and unchanged.
func (p *putOp) withCreated(e createdEntry, do func(in *guard.DirHandle, name string) error) error {
	dir, name := path.Split(e.Path)
	in, err := p.openTargetCached(path.Clean(dir))
	if err != nil {
		return ignoreMissing(err) // never created, or removed by another program
	}
	if fi, err := in.Lstat(name); err == nil && identify(fi) == e.identity {
		return do(in, name)
	}
	return nil
}

// openTargetCached is openTarget that keeps its last result open, because consecutive entries share a directory.
func (p *putOp) openTargetCached(dir string) (*guard.DirHandle, error) {
	if p.lastTarget != nil && p.lastTargetPath == dir {
		return p.lastTarget, nil
	}
	next, err := p.openTarget(dir)
	if err != nil {
		return nil, err
	}
	if p.lastTarget != nil {
		err = p.lastTarget.Close()
	}
	p.lastTarget, p.lastTargetPath = next, dir
	return next, err
}

func isNotEmptyError(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)
}

// restoreReplaced moves replaced files back to their paths, unless these are in use again. A file whose directory is
// gone is not restored: without the put it would be gone as well.
func (p *putOp) restoreReplaced(ctx context.Context, aside *guard.DirHandle) error {
	return walkReplaced(ctx, aside, (*guard.DirHandle).OpenPathForce, func(in *guard.DirHandle, dir, name string) error {
		at, err := p.openTargetCached(dir)
		if err != nil {
			return ignoreMissing(err)
		}
		if _, err = at.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			err = at.WithWriteAccess(func() error { return in.WithWriteAccess(func() error { return in.Move(name, at) }) })
		}
		return ignoreMissing(err)
	})
}

// walkReplaced visits all replaced files in stage/old. It skips entries that no put can have created, by their name
// or depth. It keeps one directory open at a time, at any depth.
func walkReplaced(ctx context.Context, aside *guard.DirHandle, find func(*guard.DirHandle, string) (*guard.DirHandle, error), visit func(in *guard.DirHandle, dir, name string) error) error {
	var errs []error
	c := cursor{top: aside, openPath: find}
	stack := []string{"."}
	for len(stack) > 0 {
		dir := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		in, err := c.open(dir)
		if err != nil {
			errs = append(errs, ignoreMissing(err))
			continue
		}
		names, err := in.Names()
		errs = append(errs, err)
		for _, name := range names {
			if err := context.Cause(ctx); err != nil {
				return errors.Join(err, c.close())
			}
			fi, err := in.Lstat(name)
			switch there := path.Join(dir, name); {
			case err != nil:
				errs = append(errs, ignoreMissing(err))
			case pathProblem(name) != "" || pathProblem(there) != "":
			case fi.Mode.IsDir():
				stack = append(stack, there)
			default:
				errs = append(errs, visit(in, dir, name))
			}
		}
	}
	return errors.Join(append(errs, c.close())...)
}

// ignoreMissing returns nil for an error that means that the directory does not exist, and otherwise the error.
func ignoreMissing(err error) error {
	var confined *guard.ConfinementError // another file type is in its place
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.As(err, &confined) {
		return nil
	}
	return err
}
