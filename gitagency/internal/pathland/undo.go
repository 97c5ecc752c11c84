package pathland

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/pathset"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Recover finishes or undoes an interrupted landing, and deletes states that belong to no sandbox any more. The caller holds the lock.
// If the landing can be neither finished nor undone, as when a directory is gone, the error is a *fault.StuckLandingError.
func Recover(ctx context.Context, r *core.Repository, repo *git.Repo) error {
	j, err := readJournal(r)
	if err != nil {
		return err
	}
	switch {
	case j == nil:
		return pathset.Sweep(ctx, r)
	case j.Phase == done:
		err = finish(ctx, r, j)
		if err == nil {
			err = discard.RemoveRemains(ctx, r, repo, j.InvocationID)
		}
	default:
		err = undoJournal(ctx, r, j)
	}
	if err != nil && context.Cause(ctx) == nil {
		err = &fault.StuckLandingError{ID: j.InvocationID, Path: journalPath(r), Err: err}
	}
	return err
}

// Interrupted returns the id of the invocation whose landing was killed, or is in progress, and the path of its journal; both are empty if
// there is none. The error is that of a journal that cannot be read.
func Interrupted(r *core.Repository) (id, path string, err error) {
	j, err := readJournal(r)
	if err != nil {
		return "", journalPath(r), err
	}
	if j == nil {
		return "", "", nil
	}
	return j.InvocationID, journalPath(r), nil
}

// finish completes a landing whose files are all in place.
func finish(ctx context.Context, r *core.Repository, j *journal) error {
	return r.RunSteps(ctx, "land", []core.Step{
		{Name: "record", Do: func() error { return j.record(r) }},
		{Name: "clean", Do: func() error { return j.removeStaging(nil) }},
		{Name: "journal-end", Do: func() error { return removeJournal(r) }},
	})
}

// record writes the landing to the record and the history of the invocation, unless it is there already.
func (j *journal) record(r *core.Repository) error {
	if r.Store.Invocation(r.ID, j.InvocationID, nil).Record.Landing == store.Landed {
		return nil
	}
	now := r.Now()
	if err := r.Store.UpdateInvocationMeta(r.ID, j.InvocationID, func(m *store.InvocationMeta) {
		m.Landing, m.FinishedAt, m.LandedAt, m.LandedCommit = store.Landed, &now, &now, j.Snapshot
		m.HasTrashArchive = r.HasTrashArchive(j.InvocationID)
	}); err != nil {
		return err
	}
	r.AppendEvent(j.InvocationID, landEvent{r.EventTime(), "land", j.Snapshot, j.countFiles()})
	return nil
}

// landEvent is the event of a landing. That of a landing on a branch has other fields, but never files.
type landEvent struct {
	Time   time.Time `json:"time"`
	Event  string    `json:"event"`
	Commit string    `json:"commit"` // keeps the work
	Files  int       `json:"files"`  // number of files that changed
}

// countFiles returns the number of files that the landing changes.
func (j *journal) countFiles() (files int) {
	for _, m := range j.Moves {
		if !m.IsDir {
			files++
		}
	}
	return files
}

// removeStaging removes the staging directories, except those of the directories for which keep, which may be nil, is true.
func (j *journal) removeStaging(keep map[int]bool) error {
	var errs []error
	for i, dir := range j.Dirs {
		staging := filepath.Join(dir, j.Staging)
		if _, err := os.Lstat(staging); keep[i] || errors.Is(err, fs.ErrNotExist) { // on a read-only file system, even the removal of a missing file fails
			continue
		}
		errs = append(errs, durable.RemoveTree(staging))
	}
	return errors.Join(errs...)
}

// undoJournal moves everything back, removes the staging directories and then the journal. Files that another program has changed meanwhile
// stay as they are; then the originals stay in the staging directory, and a warning says so.
func undoJournal(ctx context.Context, r *core.Repository, j *journal) (err error) {
	var kept map[int]bool
	if j.Phase == moving {
		if kept, err = j.undoMoves(ctx, r); err != nil {
			return err
		}
	}
	if err := j.removeStaging(kept); err != nil {
		return err
	}
	return removeJournal(r)
}

// undoMoves undoes the moves that were done, the last one first. It returns the directories whose staging directory has a file that must
// be kept.
func (j *journal) undoMoves(ctx context.Context, r *core.Repository) (kept map[int]bool, err error) {
	targets, err := openTargets(j.Dirs)
	defer func() { err = errors.Join(err, closeTargets(targets)) }()
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		if err := t.openStaging(j.Staging, false); err != nil {
			return nil, err
		}
	}
	kept = map[int]bool{}
	for i := len(j.Moves) - 1; i >= 0; i-- {
		m := j.Moves[i]
		if targets[m.Dir].staging == nil {
			continue // removed by an undo that was interrupted, or never made
		}
		why, err := m.undo(ctx, targets[m.Dir])
		if err != nil {
			return nil, err
		}
		if why != "" {
			kept[m.Dir] = true
			r.Warn("%s %s; the other file is kept as %s", filepath.Join(j.Dirs[m.Dir], string(m.Path)), why, filepath.Join(j.Dirs[m.Dir], j.Staging, m.Slot))
		}
	}
	return kept, j.syncParents(targets)
}

// undo undoes one move, if it was done. why is the change by another program that keeps it from being undone; empty if none does.
func (m moveOp) undo(ctx context.Context, t *target) (why string, err error) {
	slot, err := inodeAt(t.stagingFD(), m.Slot)
	if err != nil {
		return "", err
	}
	if m.Kind == take {
		if slot == 0 {
			return "", nil
		}
		err := t.inParent(string(m.Path), func(dir int, base string) error { return move(t.stagingFD(), m.Slot, dir, base) })
		if errors.Is(err, unix.EEXIST) || beneath.IsGone(err) {
			return "was created again by another program", nil
		}
		return "", err
	}
	if m.Kind == put && slot != 0 || m.Kind == swap && (slot == m.Inode || slot == 0) { // not done, or undone already
		return "", nil
	}
	if ours, err := m.isInPlace(ctx, t); err != nil || !ours {
		if err == nil && m.Kind == swap {
			why = "was changed by another program"
		}
		return why, err
	}
	if err := t.inParent(string(m.Path), func(dir int, base string) error {
		if m.Kind == swap {
			return exchange(t.stagingFD(), m.Slot, dir, base)
		}
		return move(dir, base, t.stagingFD(), m.Slot)
	}); err != nil {
		return "", err
	}
	return m.checkTakenBack(ctx, t)
}

// isInPlace reports whether the new file or directory is where the move put it, unchanged.
func (m moveOp) isInPlace(ctx context.Context, t *target) (bool, error) {
	there, err := t.inode(string(m.Path))
	if err != nil || there != m.Inode || m.IsDir {
		return err == nil && there == m.Inode, err
	}
	leaf, ok, err := pathset.ReadLeaf(ctx, t.read, string(m.Path)) // inode numbers are used again
	return ok && leaf == m.New, err
}

// checkTakenBack removes a new file or directory that was taken back, unless another program has changed it.
func (m moveOp) checkTakenBack(ctx context.Context, t *target) (why string, err error) {
	if m.IsDir {
		if empty, err := isEmptyDir(t.stagingFD(), m.Slot); err != nil || empty {
			return "", errors.Join(err, unix.Unlinkat(t.stagingFD(), m.Slot, unix.AT_REMOVEDIR))
		}
		return "", t.inParent(string(m.Path), func(dir int, base string) error { return move(t.stagingFD(), m.Slot, dir, base) })
	}
	leaf, _, err := readSlot(ctx, t, m.Slot)
	switch {
	case err != nil:
		return "", err
	case leaf != m.New:
		return "was changed by another program", nil
	}
	return "", unix.Unlinkat(t.stagingFD(), m.Slot, 0)
}
