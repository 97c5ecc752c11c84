// Package discard ends sandboxes: it keeps what was in them as a commit or in an archive and removes their trees,
// branches and worktree entries.
package discard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/handoff"
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
	Lost         []string `json:"lost"`          // with Force: files that are not kept, with the reasons; empty, not null
}

// Request selects the invocation to discard.
type Request struct {
	Query string // required: its id or a unique prefix
	Force bool   // discard it even if some of its content cannot be kept
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
	for round := 1; round == 1 && err == nil || errors.Is(err, errStopped); round++ {
		ended := d.EndedCommands
		d, err = discard(ctx, r, inv, req.Force, round < 3)
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

func discard(ctx context.Context, r *core.Repository, inv core.Invocation, force, mayStop bool) (Result, error) {
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
		err = sandbox.UndoInterruptedStart(ctx, r, repo, entry.ID, *entry.Intent)
	case entry.Defect == store.Incomplete:
		err = store.RemoveEmptyRecordDirs(r.Store.SandboxDir(r.ID, entry.ID), r.Store.InvocationDir(r.ID, entry.ID))
	case entry.Defect != store.NoDefect && entry.Defect != store.MissingTree:
		return Result{}, core.InvocationFromEntry(entry, nil).Err()
	case entry.Record.Landing == store.Landed:
		return Result{}, &fault.EndedError{ID: entry.ID, Landing: entry.Record.Landing, Ref: core.TrashRef(entry.ID)}
	default:
		return endInvocation(ctx, r, repo, entry, core.TrashOptions{Archive: true, Force: force}, mayStop)
	}
	if err != nil {
		return Result{}, fmt.Errorf("undo the interrupted creation of %s: %w", entry.ID, err)
	}
	return Result{ID: entry.ID, CreationUndone: true}, nil
}

// End discards an invocation that has a record, or finishes an interrupted discard or landing of it. Without
// an archive it refuses content that no commit can hold, except git state that was refused.
func End(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], o core.TrashOptions) (Result, error) {
	return endInvocation(ctx, r, repo, entry, o, false)
}

func endInvocation(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], o core.TrashOptions, mayStop bool) (Result, error) {
	var lost []string
	o.Lost = func(file string) { lost = append(lost, file) }
	if err := core.CheckParentResolved(r.Store.SandboxTreePath(r.ID, entry.ID)); err != nil {
		return Result{}, err
	}
	already, how := core.HasEnded(entry.Record), store.Discarded
	if already {
		how = entry.Record.Landing
	} else if err := r.CheckTreeNotMoved(repo, entry.ID, r.Store.SandboxTreePath(r.ID, entry.ID)); err != nil {
		return Result{}, err // not checked for an ended invocation: its name may be in use elsewhere
	}
	if err := sandbox.CheckBeforeStop(ctx, r, repo, TrashSubject(r, entry), o); err != nil {
		return Result{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	locked, err := sandbox.LockExclusive(ctx, r, entry.ID)
	if err != nil {
		return Result{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	defer locked.Close()
	if mayStop && locked.Stopped {
		return Result{EndedCommands: locked.EndedCommands}, errStopped
	}
	RecoverUploads(ctx, r, entry.ID)
	sandbox.Of(r, entry.ID).FinishRollbackForDiscard(ctx, repo, locked)
	refused, err := sandbox.Of(r, entry.ID).ImportForDiscard(ctx, repo, entry.Record.Primitives, locked.InvocationLock)
	if err != nil {
		return Result{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	if refused != nil {
		o.GitLayer = handoff.UpperDir(r, entry.ID)
		r.Warn("sandbox %s: some git state behind the walls is refused: %v", entry.ID, refused)
	}
	since := time.Now()
	if already { // unknown when the interrupted run began
		since = time.Time{}
	}
	keeps, err := hasUnkeptWork(ctx, r, repo, entry.ID)
	if err != nil {
		return Result{}, err
	}
	switch {
	case !already:
		err = moveToTrash(ctx, r, repo, entry, o)
	case keeps:
		err = addToTrash(ctx, r, repo, entry, o)
	}
	if err != nil {
		return Result{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	commit, err := removeSandbox(ctx, r, repo, entry, since, o)
	if err != nil {
		return Result{}, &fault.CleanupError{Kind: "invocation", ID: entry.ID, Done: how, Err: err}
	}
	d := Result{ID: entry.ID, Commit: commit, Already: already, EndedCommands: locked.EndedCommands, Lost: lost}
	if commit != "" {
		d.TrashRef = core.TrashRef(entry.ID)
	}
	if fi, err := os.Lstat(r.Store.TrashArchivePath(r.ID, entry.ID)); err == nil {
		d.TrashArchive, d.ArchiveSize = r.Store.TrashArchivePath(r.ID, entry.ID), fi.Size()
	}
	return d, nil
}

// TrashSubject describes the worktree of an invocation for the commit that its trash ref will point at.
func TrashSubject(r *core.Repository, entry store.Entry[store.InvocationMeta]) git.WorktreeSpec {
	how := store.Discarded
	if core.HasEnded(entry.Record) {
		how = entry.Record.Landing
	}
	return git.WorktreeSpec{
		Name: entry.ID, Dir: r.Store.SandboxTreePath(r.ID, entry.ID), Branch: core.SandboxRef(entry.ID), Base: entry.Record.BaseCommit,
		Message: fmt.Sprintf("agency: what was in sandbox %s when it was %s\n\nAgency-Invocation: %s\nAgency-Base: %s",
			entry.ID, how, entry.ID, entry.Record.BaseCommit),
	}
}
