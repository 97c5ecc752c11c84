// Package discard ends sandboxes: it keeps what was in them as a commit or in an archive and removes their trees,
// branches and worktree entries.
package discard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/pathset"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Result reports what remains of a discarded invocation.
type Result struct {
	ID             string `json:"invocation_id"`
	TrashRef       string `json:"trash_ref"`    // ref that keeps the content of the sandbox; empty when there was none
	Commit         string `json:"trash_commit"` // commit that TrashRef points at
	Already        bool   `json:"already"`      // already discarded before this call
	CreationUndone bool   `json:"undone"`       // it was an interrupted creation, which was undone; not even a record is left
	EndedCommands  int    `json:"commands"`     // number of commands that still ran in the sandbox and were ended

	TrashArchive string   `json:"trash_archive"` // archive that keeps what no commit can hold; empty when there is none
	ArchiveSize  int64    `json:"archive_size"`  // its size in bytes
	Lost         []string `json:"lost"`          // with Force: files that are not kept, with the reasons; empty, not null; set too when the removal failed

	CleanupDeferred bool     `json:"-"` // the tree is not removed, and most often renamed; another Run for the id removes it
	CleanupLock     *os.File `json:"-"` // with CleanupDeferred: as long as it is open, here or in a process that inherited it, doctor and prune take the removal for under way
}

// Request selects the invocation to discard.
type Request struct {
	Query string // required: its id or a unique prefix
	Force bool   // discard it even if some of its content cannot be kept

	DeferCleanup bool     // leave the removal of the tree to a second Run for the same id, if agency.autoDetach allows
	CleanupLock  *os.File // CleanupLock of an earlier result, which then serves for this one too; may be nil
}

// errStopped reports that something that ran in the sandbox was ended. Its git state is to be imported without the
// repository lock, because checking it may take long.
var errStopped = errors.New("the commands in the sandbox were ended")

// Run ends an invocation: it removes the tree and the branch and keeps the record and a trash ref to everything
// that was in the sandbox, including uncommitted and untracked files; files that no commit can hold go to an archive.
// Discarding twice is allowed and finishes an interrupted discard. Of an interrupted creation it removes every trace.
//
// It begins again when it has ended commands, a few times if new ones begin.
func Run(ctx context.Context, r *core.Repository, req Request) (d Result, err error) {
	inv, err := r.Invocation(req.Query)
	if err == nil {
		err = req.normalize(r)
	}
	if err == nil && inv.Landing == store.Discarded && !inv.Broken { // needs no repository lock, and may take long
		err = RemoveEndedTree(ctx, r, inv.ID)
		req.DeferCleanup = false
	}
	for round := 1; round == 1 && err == nil || errors.Is(err, errStopped); round++ {
		ended := d.EndedCommands
		d, err = discard(ctx, r, inv, req, round < 3)
		d.EndedCommands += ended
	}
	if err != nil && d.EndedCommands > 0 {
		r.Warn("commands in sandbox %s that were ended: %d", inv.ID, d.EndedCommands)
	}
	if d.Lost == nil {
		d.Lost = []string{}
	}
	return d, err
}

// normalize refuses invalid settings before anything changes.
func (req *Request) normalize(r *core.Repository) error {
	if _, err := r.Settings.TrashLimit(); err != nil {
		return err
	}
	mayDefer, err := r.Settings.DefersCleanup()
	req.DeferCleanup = req.DeferCleanup && mayDefer
	return err
}

func discard(ctx context.Context, r *core.Repository, inv core.Invocation, req Request, mayStop bool) (Result, error) {
	sandbox.Of(r, inv.ID).ImportUnlocked(ctx)
	repo, unlock, err := r.LockAndRecover(ctx)
	if err != nil {
		return Result{}, err
	}
	defer unlock()
	entry := r.Store.Invocation(r.ID, inv.ID, nil) // may have changed while waiting for the lock
	if _, there := store.FirstExisting(r.Store.InvocationDir(r.ID, inv.ID), r.Store.SandboxDir(r.ID, inv.ID)); !there {
		return Result{ID: inv.ID, Already: !inv.Broken, CreationUndone: inv.Broken}, nil // pruned or undone by another process meanwhile
	}

	switch {
	case entry.Defect != store.NoDefect && entry.Intent != nil:
		err = creation.UndoInterrupted(ctx, r, repo, entry.ID, *entry.Intent)
	case entry.Defect == store.Incomplete:
		err = store.RemoveEmptyRecordDirs(r.Store.SandboxDir(r.ID, entry.ID), r.Store.InvocationDir(r.ID, entry.ID))
	case entry.Defect != store.NoDefect && entry.Defect != store.MissingTree:
		return Result{}, core.InvocationFromEntry(entry, nil).Err()
	case entry.Record.Landing == store.Landed:
		return Result{}, core.NewEndedError(entry.ID, entry.Record.Landing, len(entry.Record.Paths) > 0)
	default:
		return endInvocation(ctx, r, repo, entry, req, core.TrashOptions{Archive: true, Force: req.Force}, mayStop)
	}
	if err != nil {
		return Result{}, fmt.Errorf("undo the interrupted creation of %s: %w", entry.ID, err)
	}
	return Result{ID: entry.ID, CreationUndone: true}, nil
}

// End discards an invocation that has a record, or finishes an interrupted discard or landing of it. Without
// an archive it refuses content that no commit can hold, except git state that was refused.
func End(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], o core.TrashOptions) (Result, error) {
	return endInvocation(ctx, r, repo, entry, Request{}, o, false)
}

func endInvocation(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], req Request, o core.TrashOptions, mayStop bool) (d Result, err error) {
	repo, done := repo.WithSharedLookups()
	defer done()
	if !entry.Record.HasEnded() {
		if _, err := r.RestoreOverlayDir(entry.ID); err != nil { // without it, the tree would count as gone
			return d, fmt.Errorf("discard %s: %w", entry.ID, err)
		}
	}
	if err := checkEndable(ctx, r, repo, entry, o); err != nil {
		return d, err
	}
	locked, err := sandbox.LockExclusive(ctx, r, entry.ID)
	if err != nil {
		return d, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	defer locked.Close()
	d = Result{ID: entry.ID, Already: entry.Record.HasEnded(), EndedCommands: locked.EndedCommands}
	if mayStop && locked.Stopped {
		return d, errStopped
	}
	if o.Dirs, err = finishWork(ctx, r, repo, entry, locked); err != nil {
		return d, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	since := time.Now()
	if d.Already { // unknown when the interrupted run began
		since = time.Time{}
	}
	o.Lost = &d.Lost
	if err := keepContent(ctx, r, repo, entry, o); err != nil {
		d.Lost = nil // nothing is removed
		return d, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	removeErr := d.removeOrWithdraw(ctx, r, repo, entry, since, req, o)
	err = d.findKept(ctx, r, repo)
	if removeErr != nil {
		return d, &fault.CleanupError{Kind: "invocation", ID: entry.ID, Done: landingOf(entry), Err: removeErr}
	}
	return d, err
}

// removeOrWithdraw removes a discarded sandbox. If the removal of its tree may be left to another process, it takes the lock
// that says that this is under way. While doctor or prune wait for the repository lock with that lock taken, it removes the
// tree itself, as it does if some files are not kept.
func (d *Result) removeOrWithdraw(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], since time.Time, req Request, o core.TrashOptions) error {
	if !req.DeferCleanup || d.Already || len(d.Lost) > 0 {
		return removeSandbox(ctx, r, repo, entry, since, o)
	}
	mark := req.CleanupLock
	if mark == nil {
		var err error
		if mark, err = MarkCleanup(ctx, r, 0); err != nil {
			if fault.Is[*fault.LockTimeoutError](err) || errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return errors.Join(err, removeSandbox(ctx, r, repo, entry, since, o))
		}
	}
	withdrawn, err := withdrawSandbox(ctx, r, repo, entry, since, o)
	if err != nil || withdrawn {
		d.CleanupDeferred, d.CleanupLock = true, mark
		return err
	}
	if mark != req.CleanupLock {
		_ = mark.Close()
	}
	return removeSandbox(ctx, r, repo, entry, since, o)
}

// findKept fills in what the trash keeps of a sandbox.
func (d *Result) findKept(ctx context.Context, r *core.Repository, repo *git.Repo) (err error) {
	if d.Commit, err = r.TrashCommit(ctx, repo, d.ID); err != nil {
		return err
	}
	if d.Commit != "" {
		d.TrashRef = core.TrashRef(d.ID)
	}
	if fi, err := os.Lstat(r.Store.TrashArchivePath(r.ID, d.ID)); err == nil {
		d.TrashArchive, d.ArchiveSize = r.Store.TrashArchivePath(r.ID, d.ID), fi.Size()
	}
	return nil
}

// checkEndable checks what would prevent the end of a sandbox, before commands in it are ended.
func checkEndable(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], o core.TrashOptions) error {
	tree := r.Store.SandboxTreePath(r.ID, entry.ID)
	if err := core.CheckParentResolved(tree); err != nil {
		return err
	}
	if !entry.Record.HasEnded() { // the name of an ended invocation may be in use elsewhere
		if err := r.CheckTreeNotMoved(repo, entry.ID, tree); err != nil {
			return err
		}
	}
	if err := sandbox.CheckBeforeStop(ctx, r, repo, TrashSubject(r, entry), o); err != nil {
		return fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	return nil
}

// finishWork finishes interrupted uploads and rollbacks in a sandbox and imports its git state. It returns the directories with what no
// commit can keep: git state of which some was refused, and parts of plain directories.
func finishWork(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], locked sandbox.ExclusiveLock) (dirs []core.ArchivedDir, err error) {
	if m := entry.Record; len(m.Paths) > 0 && !m.HasEnded() {
		kept, work, err := pathset.Keep(ctx, r, entry.ID, m.PathsFields)
		if err != nil {
			return nil, fmt.Errorf("keep the changes of the directories: %w", err)
		}
		dirs = pathset.DirsToArchive(r, entry.ID, m.PathsFields, work.LeftOut)
		for _, l := range work.LeftOut {
			if why := pathset.WhyNotKept(l.Reason); why != "" {
				r.Warn("not in the snapshot, but in %s: %s: %s", r.Store.TrashArchivePath(r.ID, entry.ID), pathset.Name(m.Paths, l.Path), why)
			}
		}
		if kept.Number > 0 {
			r.Warn("the changes of the directories are kept as snapshot %s/%d", entry.ID, kept.Number)
		}
	}
	RecoverUploads(ctx, r, entry.ID)
	box := sandbox.Of(r, entry.ID)
	box.FinishRollbackForDiscard(ctx, repo, locked)
	refused, err := box.ImportForDiscard(ctx, repo, entry.Record.Primitives, locked.InvocationLock)
	if entry.Record.HasEnded() && fault.Is[*fault.NotSandboxError](err) { // the tree was renamed, and another directory is in its place
		return dirs, nil
	}
	if err != nil || refused == nil {
		return dirs, err
	}
	r.Warn("sandbox %s: some of its git state is refused: %v", entry.ID, refused)
	return append(dirs, r.GitDirsToArchive(entry.ID)...), nil
}

// keepContent keeps the content of a sandbox in the trash, or what was added to it after it had ended.
func keepContent(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], o core.TrashOptions) error {
	if !entry.Record.HasEnded() {
		return moveToTrash(ctx, r, repo, entry, o)
	}
	if unkept, err := hasUnkeptWork(ctx, r, repo, entry.ID); err != nil || !unkept {
		return err
	}
	return addToTrash(ctx, r, repo, entry, o)
}

// landingOf returns how an invocation ends: as its record says, or discarded.
func landingOf(entry store.Entry[store.InvocationMeta]) string {
	if entry.Record.HasEnded() {
		return entry.Record.Landing
	}
	return store.Discarded
}

// TrashSubject describes the worktree of an invocation for the commit that its trash ref will point at.
func TrashSubject(r *core.Repository, entry store.Entry[store.InvocationMeta]) git.WorktreeSpec {
	return git.WorktreeSpec{
		Name: entry.ID, Dir: r.Store.SandboxTreePath(r.ID, entry.ID), Branch: core.SandboxRef(entry.ID), Base: entry.Record.BaseCommit,
		Message: fmt.Sprintf("agency: what was in sandbox %s when it was %s\n\nAgency-Invocation: %s\nAgency-Base: %s",
			entry.ID, landingOf(entry), entry.ID, entry.Record.BaseCommit),
	}
}
