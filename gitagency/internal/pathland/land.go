// Package pathland lands the work of sandboxes over plain directories: it applies their changes to the directories, all of them or none.
// A journal describes every change before it is made, so that the next command undoes or completes a landing that was killed.
package pathland

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/pathset"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Result reports a landing.
type Result struct {
	Invocation string
	Snapshot   string            // commit that keeps the work of the sandbox
	Files      []string          // files that were changed, as "<path as given>/<file>"
	LeftOut    []pathset.LeftOut // paths that the sandbox changed and that did not land; named as Files are
	Already    bool              // it had landed before
	DryRun     bool
}

// Land applies the work of a sandbox to its directories. Its error is a *fault.ConflictsError if the directories have changed since in a
// way that cannot be merged; then nothing has changed. The sandbox ends when it has landed. If its remains cannot be removed then, the
// result is complete, and the error is a *fault.CleanupError.
func Land(ctx context.Context, r *core.Repository, query string, dry bool) (Result, error) {
	inv, err := r.Invocation(query)
	if err != nil {
		return Result{}, err
	}
	repo, unlock, err := r.LockWithoutRecovery(ctx)
	if err != nil {
		return Result{}, err
	}
	defer unlock()
	if err := Recover(ctx, r, repo); err != nil {
		return Result{}, err
	}
	entry := r.Store.Invocation(r.ID, inv.ID, nil) // may have changed while waiting for the lock
	res := Result{Invocation: entry.ID, DryRun: dry, Files: []string{}}
	switch {
	case entry.Defect != store.NoDefect:
		return Result{}, core.InvocationFromEntry(entry, nil).Err()
	case entry.Record.Landing == store.Landed:
		res.Already, res.Snapshot = true, entry.Record.LandedCommit
		return res, discard.RemoveRemains(ctx, r, repo, entry.ID)
	case entry.Record.HasEnded():
		return Result{}, core.NewEndedError(entry.ID, entry.Record.Landing, true)
	}
	free, err := lockSandbox(ctx, r, entry.ID)
	if err != nil {
		return Result{}, err
	}
	landed, err := landLocked(ctx, r, entry, &res)
	if landed == nil {
		if err = errors.Join(err, free.Close()); err != nil {
			return Result{}, err
		}
		return res, nil
	}
	ctx = context.WithoutCancel(ctx) // an interrupt comes too late, and must not be reported as one that was undone
	if err == nil {
		err = finish(ctx, r, landed)
	}
	err = errors.Join(err, free.Close())
	if err == nil {
		err = discard.RemoveRemains(ctx, r, repo, entry.ID)
	}
	if err != nil {
		err = &fault.CleanupError{Kind: "invocation", ID: entry.ID, Done: store.Landed, Err: err}
	}
	return res, err
}

// lockSandbox keeps commands out of a sandbox, in which none may run.
func lockSandbox(ctx context.Context, r *core.Repository, id string) (*os.File, error) {
	const wait = time.Second // a process that is being started may have inherited the lock of a command that has ended
	dir := r.Store.InvocationDir(r.ID, id)
	held, err := lock.AcquireDirExclusive(ctx, dir, wait)
	if fault.Is[*fault.LockTimeoutError](err) {
		return nil, &fault.RunningError{ID: id, Programs: proc.TaskCommands(dir)}
	}
	return held, err
}

// landLocked applies the work of a sandbox in which nothing runs. It returns the journal of the landing, which is to be finished; nil if
// nothing has landed.
func landLocked(ctx context.Context, r *core.Repository, entry store.Entry[store.InvocationMeta], res *Result) (landed *journal, err error) {
	m := entry.Record.PathsFields
	dirs := make([]string, len(m.Paths))
	for i, p := range m.Paths {
		dirs[i] = p.Path
		if err := pathset.CheckPlace(r, p.Path); err != nil {
			return nil, err
		}
	}
	targets, err := openTargets(dirs)
	defer func() { err = errors.Join(err, closeTargets(targets)) }()
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; nothing was changed; move the directory back, or keep the changes with 'git agency discard %s'", err, entry.ID)
	}
	if err != nil {
		return nil, err
	}
	merger, err := merge.NewMerger(pathset.States(r).Git, m.PathsBase)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, merger.Close()) }()
	work, err := pathset.ReadWork(ctx, r, merger.Repo, entry.ID, m)
	if err != nil {
		return nil, err
	}
	for _, l := range work.LeftOut {
		l.Path = pathset.Name(m.Paths, l.Path)
		if err := refuseLeftOut(l); err != nil {
			return nil, &fault.InvocationError{ID: entry.ID, Err: err}
		}
		res.LeftOut = append(res.LeftOut, l)
	}
	plan, err := makePlan(ctx, merger, targets, m, work)
	if err != nil {
		return nil, err
	}
	if len(plan.conflicts) > 0 {
		return nil, &fault.ConflictsError{ID: entry.ID, Conflicts: plan.conflicts, Directories: true}
	}
	res.Files = append(res.Files, plan.files...)
	if res.DryRun {
		return nil, nil
	}
	kept, again, err := pathset.Keep(ctx, r, entry.ID, m)
	if err == nil && again.TreeID != work.TreeID {
		err = fmt.Errorf("the files of sandbox %s keep changing, although no command runs in it", entry.ID)
	}
	if err != nil {
		return nil, err
	}
	if dirs := pathset.DirsToArchive(r, entry.ID, m, work.LeftOut); len(dirs) > 0 {
		if err := r.ArchiveDirs(ctx, entry.ID, dirs); err != nil {
			return nil, fmt.Errorf("keep what does not land: %w", err)
		}
		defer func() {
			if landed == nil {
				err = errors.Join(err, r.Store.RemoveTrashArchive(r.ID, entry.ID))
				return
			}
			r.Warn("what does not land is kept in %s", r.Store.TrashArchivePath(r.ID, entry.ID))
		}()
	}
	res.Snapshot = kept.ID
	j := &journal{
		SchemaVersion: store.SchemaVersion, InvocationID: entry.ID, Phase: staging, Dirs: dirs,
		Staging: pathset.StagingPrefix + entry.ID + "-" + rand.Text(), // no other directory has this name
		Moves:   plan.moves, Snapshot: kept.ID, PID: os.Getpid(), StartedAt: r.Now(),
	}
	if err = apply(ctx, r, merger.Repo, j, targets); j.Phase == done {
		landed = j
	}
	return landed, err
}

// refuseLeftOut returns an error for files that would be lost with the sandbox, although the user can make them land.
func refuseLeftOut(l pathset.LeftOut) error {
	switch l.Reason {
	case pathset.LeftOutUnreadable:
		return &fault.UnreadableError{Path: l.Path}
	case pathset.LeftOutDeep:
		return fmt.Errorf("%s: %s", l.Path, pathset.WhyNotKept(l.Reason))
	}
	return nil
}

// openTargets opens directories. Those that were opened are returned with an error, too.
func openTargets(dirs []string) (targets []*target, err error) {
	for _, dir := range dirs {
		t, err := openTarget(dir)
		if err != nil {
			return targets, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}

func closeTargets(targets []*target) error {
	var errs []error
	for _, t := range targets {
		errs = append(errs, t.close())
	}
	return errors.Join(errs...)
}
