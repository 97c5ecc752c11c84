package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/repair"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// DiscardResult reports what remains of a discarded invocation.
type DiscardResult struct {
	ID             string `json:"invocation_id"`
	TrashRef       string `json:"trash_ref"`    // ref that keeps the content of the sandbox; empty when there was none
	Commit         string `json:"trash_commit"` // commit that TrashRef points at
	Already        bool   `json:"already"`      // already discarded before this call
	CreationUndone bool   `json:"undone"`       // it was an interrupted creation, which was undone; not even a record is left
	EndedCommands  int    `json:"commands"`     // number of commands that still ran in the sandbox and were ended
}

// Discard ends an invocation: it removes the tree and the branch and keeps the record and a trash ref to everything
// that was in the sandbox, including uncommitted and untracked files. Discarding twice is allowed and finishes an
// interrupted discard. Of an interrupted creation it removes every trace.
func Discard(ctx context.Context, r *core.Repository, query string) (DiscardResult, error) {
	inv, err := r.Invocation(query)
	if err != nil {
		return DiscardResult{}, err
	}
	Of(r, inv.ID).ImportUnlocked(ctx)
	repo, unlock, err := r.LockAndRecover(ctx)
	if err != nil {
		return DiscardResult{}, err
	}
	defer unlock()
	entry := r.Store.Invocation(r.ID, inv.ID, nil) // may have changed while waiting for the lock
	if _, there := store.FirstExisting(r.Store.InvocationDir(r.ID, inv.ID), r.Store.SandboxDir(r.ID, inv.ID)); !there {
		return DiscardResult{ID: inv.ID, Already: !inv.Broken, CreationUndone: inv.Broken}, nil // pruned or undone by another process meanwhile
	}

	switch {
	case entry.Defect != store.NoDefect && entry.Intent != nil:
		err = UndoInterruptedStart(ctx, r, repo, entry.ID, *entry.Intent)
	case entry.Defect == store.Incomplete:
		err = store.RemoveEmptyRecordDirs(r.Store.SandboxDir(r.ID, entry.ID), r.Store.InvocationDir(r.ID, entry.ID))
	case entry.Defect != store.NoDefect && entry.Defect != store.MissingTree:
		return DiscardResult{}, core.InvocationFromEntry(entry, nil).Err()
	case entry.Record.Landing == store.Landed:
		return DiscardResult{}, &fault.EndedError{ID: entry.ID, Landing: entry.Record.Landing, Ref: core.TrashRef(entry.ID)}
	default:
		return EndInvocation(ctx, r, repo, entry)
	}
	if err != nil {
		return DiscardResult{}, fmt.Errorf("undo the interrupted creation of %s: %w", entry.ID, err)
	}
	return DiscardResult{ID: entry.ID, CreationUndone: true}, nil
}

// UndoInterruptedStart removes what an interrupted Start left behind.
func UndoInterruptedStart(ctx context.Context, r *core.Repository, repo *git.Repo, id string, intent store.Intent) error {
	return r.UndoCreation(ctx, repo, r.Store.InvocationDir(r.ID, id), changeset.Spec{
		ID: id, Tree: r.Store.SandboxTreePath(r.ID, id), Branch: core.SandboxRef(id),
		Base: intent.BaseCommit, Tip: intent.Tip, FilesCommit: intent.FromSnapshot,
	})
}

// EndInvocation discards an invocation that has a record, or finishes an interrupted discard or landing of it.
func EndInvocation(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta]) (DiscardResult, error) {
	if err := core.CheckParentResolved(r.Store.SandboxTreePath(r.ID, entry.ID)); err != nil {
		return DiscardResult{}, err
	}
	already, how := core.HasEnded(entry.Record), store.Discarded
	if already {
		how = entry.Record.Landing
	} else if err := r.CheckTreeNotMoved(repo, entry.ID, r.Store.SandboxTreePath(r.ID, entry.ID)); err != nil {
		return DiscardResult{}, err // not checked for an ended invocation: its name may be in use elsewhere
	}
	if err := CheckBeforeStop(ctx, r, repo, TrashSubject(r, entry)); err != nil {
		return DiscardResult{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	locked, err := LockExclusive(ctx, r, entry.ID)
	if err != nil {
		return DiscardResult{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	defer locked.Close()
	RecoverUploads(ctx, r, entry.ID)
	Of(r, entry.ID).finishRollbackForDiscard(ctx, repo, locked)
	if err := Of(r, entry.ID).ImportForDiscard(ctx, repo, entry.Record.Primitives, locked.invocationLock); err != nil {
		return DiscardResult{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	since := time.Now()
	if already { // unknown when the interrupted run began
		since = time.Time{}
	}
	keeps, err := hasUnkeptWork(ctx, r, repo, entry.ID)
	if err != nil {
		return DiscardResult{}, err
	}
	switch {
	case !already:
		err = moveToTrash(ctx, r, repo, entry)
	case keeps:
		err = addToTrash(ctx, r, repo, entry)
	}
	if err != nil {
		return DiscardResult{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	commit, err := removeSandbox(ctx, r, repo, entry, since)
	if err != nil {
		return DiscardResult{}, &fault.CleanupError{Kind: "invocation", ID: entry.ID, Done: how, Err: err}
	}
	d := DiscardResult{ID: entry.ID, Commit: commit, Already: already, EndedCommands: locked.EndedCommands}
	if commit != "" {
		d.TrashRef = core.TrashRef(entry.ID)
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

// hasUnkeptWork reports whether the invocation still has a tree, a branch whose commits the trash ref does not
// contain, or a git worktree entry that may lead to commits although its tree is gone. This happens after an
// interrupted discard, or when an agent continued to write.
func hasUnkeptWork(ctx context.Context, r *core.Repository, repo *git.Repo, id string) (bool, error) {
	found, err := repo.Lookup(ctx, core.TrashRef(id), core.SandboxRef(id))
	if err != nil {
		return false, err
	}
	held, err := repo.IsAncestor(ctx, found[1].OID, found[0].OID)
	if err != nil {
		return false, err
	}
	registered, err := repo.RegisteredTrees()
	if err != nil {
		return false, err
	}
	spec := Spec(r, id)
	// If the tree was renamed aside, removing it captures the entry too.
	entry := !store.IsDir(store.WithdrawnPath(spec.Tree)) && core.WorktreeBackend(repo).IsRegistered(spec, registered)
	return store.IsDir(spec.Tree) || !found[1].Missing() && !held || entry, nil
}

// moveToTrash captures the sandbox under the trash ref and records the invocation as discarded. The record is the
// commit point: before it everything is undone on failure, after it only removal is left.
func moveToTrash(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta]) (err error) {
	tx := r.BeginTx("discard")
	defer func() {
		if err != nil {
			core.RollbackTx(ctx, tx)
		}
	}()
	// 1. Capture the content as a commit that no ref points at yet.
	var captured snapshot.CaptureResult
	if err := tx.Step(ctx, "capture", func() error {
		captured, err = r.CaptureTree(ctx, repo, TrashSubject(r, entry))
		return err
	}); err != nil {
		return err
	}
	// 2. Point the trash ref at it.
	if err := tx.Step(ctx, "trash", func() error {
		return r.KeepCommit(ctx, tx, repo, core.TrashRef(entry.ID), captured.Commit)
	}); err != nil {
		return err
	}
	// 3. Commit point: write the record.
	if err := tx.Step(ctx, "record", func() error {
		tx.Undo("record", func(context.Context) error {
			return r.Store.UpdateInvocationMeta(r.ID, entry.ID, func(m *store.InvocationMeta) {
				m.Landing, m.FinishedAt = entry.Record.Landing, entry.Record.FinishedAt
			})
		})
		return r.Store.UpdateInvocationMeta(r.ID, entry.ID, func(m *store.InvocationMeta) {
			now := r.Now()
			m.Landing, m.FinishedAt = store.Discarded, &now
		})
	}); err != nil {
		return err
	}
	tx.Commit()
	recordTrash(r, entry.ID, "discard", captured.Commit)
	return nil
}

// addToTrash adds changes made to a sandbox after it had ended to its trash ref, without replacing what the ref
// keeps. It renews the date of the record first: pruning decides by that date and must never take the new content for
// old, even if this process dies in between.
func addToTrash(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta]) (err error) {
	tx := r.BeginTx("discard")
	defer func() {
		if err != nil {
			core.RollbackTx(ctx, tx)
		}
	}()
	kept := ""
	var captured snapshot.CaptureResult
	if err := tx.Step(ctx, "capture", func() error {
		if kept, err = r.TrashCommit(ctx, repo, entry.ID); err != nil {
			return err
		}
		subject := TrashSubject(r, entry)
		subject.Onto = kept
		captured, err = r.CaptureTree(ctx, repo, subject)
		return err
	}); err != nil || captured.Commit == kept {
		return err // no changes
	}
	if err := tx.Step(ctx, "record", func() error {
		tx.Undo("record", func(context.Context) error {
			return r.Store.UpdateInvocationMeta(r.ID, entry.ID, func(m *store.InvocationMeta) { m.FinishedAt = entry.Record.FinishedAt })
		})
		return renewFinishedAt(r, entry.ID)
	}); err != nil {
		return err
	}
	if err := tx.Step(ctx, "trash", func() error {
		return r.KeepCommit(ctx, tx, repo, core.TrashRef(entry.ID), captured.Commit)
	}); err != nil {
		return err
	}
	tx.Commit()
	recordTrash(r, entry.ID, "keep", captured.Commit)
	return nil
}

// renewFinishedAt sets the end date of an invocation to now, because there was work in its sandbox until now.
func renewFinishedAt(r *core.Repository, id string) error {
	return r.Store.UpdateInvocationMeta(r.ID, id, func(m *store.InvocationMeta) {
		now := r.Now()
		m.FinishedAt = &now
	})
}

// recordTrash appends an event with the trash ref and its commit to the history of an invocation.
func recordTrash(r *core.Repository, id, event, commit string) {
	AppendEvent(r, id, discardEvent{r.Now(), event, core.TrashRef(id), commit})
}

// AppendEvent appends an event to the history of an invocation. A failure is only a warning: the operation itself is
// already done.
func AppendEvent(r *core.Repository, id string, event any) {
	if err := r.Store.AppendEvent(r.ID, id, event); err != nil {
		r.Warn("history of %s: %v", id, err)
	}
}

type discardEvent struct {
	Time   time.Time `json:"time"`
	Event  string    `json:"event"`
	Ref    string    `json:"trash_ref"`
	Commit string    `json:"trash_commit"`
}

// removeSandbox removes the tree, the worktree entry and the branch of a discarded invocation, and returns the commit
// of the trash ref. Each part may be gone already.
func removeSandbox(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], since time.Time) (string, error) {
	id, spec := entry.ID, Spec(r, entry.ID)
	if err := r.RunSteps(ctx, "discard", []core.Step{
		{Name: "tree", Do: func() error {
			return r.RemoveCapturedTree(ctx, repo, TrashSubject(r, entry), since, func() error { return renewFinishedAt(r, id) })
		}},
		{Name: "registration", Do: func() error { return core.WorktreeBackend(repo).Unregister(spec) }},
		{Name: "branch", Do: func() error { return DeleteKeptBranch(ctx, r, repo, spec) }},
		{Name: "leftovers", Do: func() error { return store.RemoveLeftovers(spec.Scratch) }},
		{Name: "sandbox-dir", Do: func() error { return r.Store.RemoveSandboxTree(r.ID, id) }},
	}); err != nil {
		return "", err
	}
	return r.TrashCommit(ctx, repo, id)
}

// Spec returns the paths and the branch of the sandbox of an invocation.
func Spec(r *core.Repository, id string) changeset.Spec {
	return changeset.Spec{ID: id, Tree: r.Store.SandboxTreePath(r.ID, id), Branch: core.SandboxRef(id), Scratch: r.Store.InvocationDir(r.ID, id)}
}

// DeleteKeptBranch deletes the branch of a discarded sandbox, unless another worktree has it checked out. It fails if
// the trash ref does not contain all commits of the branch.
func DeleteKeptBranch(ctx context.Context, r *core.Repository, repo *git.Repo, spec changeset.Spec) error {
	found, err := repo.Lookup(ctx, core.TrashRef(spec.ID), spec.Branch)
	if err != nil {
		return err
	}
	kept, branch := found[0].OID, found[1].OID
	listing, err := repo.Worktrees(ctx)
	if err != nil {
		return err
	}
	if path := CheckedOutElsewhere(listing.Worktrees, spec); path != "" {
		r.Warn("branch %s is checked out at %s; it stays", core.ShortBranch(spec.Branch), path)
		return nil
	}
	if branch == "" {
		return errors.Join(repair.DeleteBrokenRef(ctx, repo, spec.Branch), repo.RemoveRefLeftovers(ctx, spec.Branch))
	}
	safe, err := repo.IsAncestor(ctx, branch, kept)
	if err != nil {
		return err
	}
	if !safe {
		return errors.New("branch " + core.ShortBranch(spec.Branch) + " has commits that are not in " + core.TrashRef(spec.ID) + "; the branch is kept")
	}
	return core.WorktreeBackend(repo).DeleteBranch(ctx, spec, branch)
}

// CheckedOutElsewhere returns the path of another worktree that has the branch of the sandbox checked out; empty when
// there is none.
func CheckedOutElsewhere(worktrees []git.Worktree, spec changeset.Spec) string {
	for _, w := range worktrees {
		if w.Branch == spec.Branch && w.Path != spec.Tree {
			return w.Path
		}
	}
	return ""
}
