package gitagency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// DiscardResult reports what remains of a discarded invocation.
type Discarded struct {
	ID       string `json:"invocation_id"`
	TrashRef string `json:"trash_ref"`    // ref that keeps the content of the sandbox; empty when there was none
	Commit   string `json:"trash_commit"` // commit that TrashRef points at
	Already  bool   `json:"already"`      // already discarded before this call
	Undone   bool   `json:"undone"`       // it was an interrupted creation, which was undone; not even a record is left
	Commands int    `json:"commands"`     // number of commands that still ran in the sandbox and were ended
}

// Discard ends an invocation: it removes the tree and the branch and keeps the record and a trash ref to everything
// that was in the sandbox, including uncommitted and untracked files. Discarding twice is allowed and finishes an
// interrupted discard. Of an interrupted creation it removes every trace.
func (r *Repository) Discard(ctx context.Context, query string) (Discarded, error) {
	inv, err := r.Invocation(query)
	if err != nil {
		return Discarded{}, err
	}
	repo, unlock, err := r.lock(ctx)
	if err != nil {
		return Discarded{}, err
	}
	defer unlock()
	entry := r.store.Invocation(r.ID, inv.ID, nil) // may have changed while waiting for the lock
	if _, there := store.Taken(r.store.InvocationDir(r.ID, inv.ID), r.store.SandboxDir(r.ID, inv.ID)); !there {
		return Discarded{ID: inv.ID, Already: !inv.Broken, Undone: inv.Broken}, nil // pruned or undone by another process meanwhile
	}

	switch {
	case entry.Broken != store.Whole && entry.Intent != nil:
		err = r.abandonSandbox(ctx, repo, entry.ID, *entry.Intent)
	case entry.Broken == store.Incomplete:
		err = store.RemoveRemains(r.store.SandboxDir(r.ID, entry.ID), r.store.InvocationDir(r.ID, entry.ID))
	case entry.Broken != store.Whole && entry.Broken != store.MissingTree:
		return Discarded{}, invocation(entry, nil).Err()
	case entry.Record.Landing == store.Landed:
		return Discarded{}, &EndedError{ID: entry.ID, Landing: entry.Record.Landing, Ref: trashRef(entry.ID)}
	default:
		return r.end(ctx, repo, entry)
	}
	if err != nil {
		return Discarded{}, fmt.Errorf("undo the interrupted creation of %s: %w", entry.ID, err)
	}
	return Discarded{ID: entry.ID, Undone: true}, nil
}

// undoInterruptedStart removes what an interrupted Start left behind.
func (r *Repository) abandonSandbox(ctx context.Context, repo *git.Repo, id string, intent store.Intent) error {
	return r.abandon(ctx, repo, r.store.InvocationDir(r.ID, id), changeset.Spec{
		ID: id, Tree: r.store.SandboxTreePath(r.ID, id), Branch: sandboxRef(id),
		Base: intent.Base, Tip: intent.Tip, Files: intent.FromSnapshot,
	})
}

// endInvocation discards an invocation that has a record, or finishes an interrupted discard or landing of it.
func (r *Repository) end(ctx context.Context, repo *git.Repo, entry store.Entry[store.InvocationMeta]) (Discarded, error) {
	if err := checkReal(r.store.SandboxTreePath(r.ID, entry.ID)); err != nil {
		return Discarded{}, err
	}
	already, how := ended(entry.Record), store.Discarded
	if already {
		how = entry.Record.Landing
	} else if err := r.checkNotMoved(repo, entry.ID, r.store.SandboxTreePath(r.ID, entry.ID)); err != nil {
		return Discarded{}, err // not checked for an ended invocation: its name may be in use elsewhere
	}
	if err := r.mayVacate(ctx, repo, r.subject(entry)); err != nil {
		return Discarded{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	locked, err := r.vacate(ctx, entry.ID)
	if err != nil {
		return Discarded{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	defer locked.close()
	r.settle(ctx, entry.ID)
	r.sandboxOf(entry.ID).finishForGood(ctx, repo, locked)
	if err := r.sandboxOf(entry.ID).emptyLayer(ctx, repo, entry.Record.Primitives, locked.inside); err != nil {
		return Discarded{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	since := time.Now()
	if already { // unknown when the interrupted run began
		since = time.Time{}
	}
	keeps, err := r.holdsWork(ctx, repo, entry.ID)
	if err != nil {
		return Discarded{}, err
	}
	switch {
	case !already:
		err = r.giveUp(ctx, repo, entry)
	case keeps:
		err = r.keepMore(ctx, repo, entry)
	}
	if err != nil {
		return Discarded{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	commit, err := r.removeDiscarded(ctx, repo, entry, since)
	if err != nil {
		return Discarded{}, &CleanupError{Kind: "invocation", ID: entry.ID, Done: how, Err: err}
	}
	d := Discarded{ID: entry.ID, Commit: commit, Already: already, Commands: locked.commands}
	if commit != "" {
		d.TrashRef = trashRef(entry.ID)
	}
	return d, nil
}

// trashSubject describes the worktree of an invocation for the commit that its trash ref will point at.
func (r *Repository) subject(entry store.Entry[store.InvocationMeta]) git.Subject {
	how := store.Discarded
	if ended(entry.Record) {
		how = entry.Record.Landing
	}
	return git.Subject{
		Name: entry.ID, Tree: r.store.SandboxTreePath(r.ID, entry.ID), Branch: sandboxRef(entry.ID), Base: entry.Record.BaseCommit,
		Message: fmt.Sprintf("agency: what was in sandbox %s when it was %s\n\nAgency-Invocation: %s\nAgency-Base: %s",
			entry.ID, how, entry.ID, entry.Record.BaseCommit),
	}
}

// hasUnkeptWork reports whether the invocation still has a tree, a branch whose commits the trash ref does not
// contain, or a git worktree entry that may lead to commits although its tree is gone. This happens after an
// interrupted discard, or when an agent continued to write.
func (r *Repository) holdsWork(ctx context.Context, repo *git.Repo, id string) (bool, error) {
	found, err := repo.Lookup(ctx, trashRef(id), sandboxRef(id))
	if err != nil {
		return false, err
	}
	held, err := repo.IsAncestor(ctx, found[1].OID, found[0].OID)
	if err != nil {
		return false, err
	}
	registered, err := repo.Registered()
	if err != nil {
		return false, err
	}
	spec := r.sandboxSpec(id)
	// If the tree was renamed aside, removing it captures the entry too.
	entry := !store.IsDir(store.Aside(spec.Tree)) && backend(repo).Registered(spec, registered)
	return store.IsDir(spec.Tree) || !found[1].Missing() && !held || entry, nil
}

// moveToTrash captures the sandbox under the trash ref and records the invocation as discarded. The record is the
// commit point: before it everything is undone on failure, after it only removal is left.
func (r *Repository) giveUp(ctx context.Context, repo *git.Repo, entry store.Entry[store.InvocationMeta]) (err error) {
	tx := r.begin("discard")
	defer func() {
		if err != nil {
			rollback(ctx, tx)
		}
	}()
	// 1. Capture the content as a commit that no ref points at yet.
	var captured git.Captured
	if err := tx.Step(ctx, "capture", func() error {
		captured, err = r.capture(ctx, repo, r.subject(entry))
		return err
	}); err != nil {
		return err
	}
	// 2. Point the trash ref at it.
	if err := tx.Step(ctx, "trash", func() error {
		return r.keep(ctx, tx, repo, trashRef(entry.ID), captured.Commit)
	}); err != nil {
		return err
	}
	// 3. Commit point: write the record.
	if err := tx.Step(ctx, "record", func() error {
		tx.Undo("record", func(context.Context) error {
			return r.store.UpdateInvocationMeta(r.ID, entry.ID, func(m *store.InvocationMeta) {
				m.Landing, m.FinishedAt = entry.Record.Landing, entry.Record.FinishedAt
			})
		})
		return r.store.UpdateInvocationMeta(r.ID, entry.ID, func(m *store.InvocationMeta) {
			now := r.now()
			m.Landing, m.FinishedAt = store.Discarded, &now
		})
	}); err != nil {
		return err
	}
	tx.Commit()
	r.note(entry.ID, "discard", captured.Commit)
	return nil
}

// addToTrash adds changes made to a sandbox after it had ended to its trash ref, without replacing what the ref
// keeps. It renews the date of the record first: pruning decides by that date and must never take the new content for
// old, even if this process dies in between.
func (r *Repository) keepMore(ctx context.Context, repo *git.Repo, entry store.Entry[store.InvocationMeta]) (err error) {
	tx := r.begin("discard")
	defer func() {
		if err != nil {
			rollback(ctx, tx)
		}
	}()
	kept := ""
	var captured git.Captured
	if err := tx.Step(ctx, "capture", func() error {
		if kept, err = r.kept(ctx, repo, entry.ID); err != nil {
			return err
		}
		subject := r.subject(entry)
		subject.Onto = kept
		captured, err = r.capture(ctx, repo, subject)
		return err
	}); err != nil || captured.Commit == kept {
		return err // no changes
	}
	if err := tx.Step(ctx, "record", func() error {
		tx.Undo("record", func(context.Context) error {
			return r.store.UpdateInvocationMeta(r.ID, entry.ID, func(m *store.InvocationMeta) { m.FinishedAt = entry.Record.FinishedAt })
		})
		return r.renew(entry.ID)
	}); err != nil {
		return err
	}
	if err := tx.Step(ctx, "trash", func() error {
		return r.keep(ctx, tx, repo, trashRef(entry.ID), captured.Commit)
	}); err != nil {
		return err
	}
	tx.Commit()
	r.note(entry.ID, "keep", captured.Commit)
	return nil
}

// renewFinishedAt sets the end date of an invocation to now, because there was work in its sandbox until now.
func (r *Repository) renew(id string) error {
	return r.store.UpdateInvocationMeta(r.ID, id, func(m *store.InvocationMeta) {
		now := r.now()
		m.FinishedAt = &now
	})
}

// recordTrash appends an event with the trash ref and its commit to the history of an invocation.
func (r *Repository) note(id, event, commit string) {
	r.record(id, discardEvent{r.now(), event, trashRef(id), commit})
}

// appendEvent appends an event to the history of an invocation. A failure is only a warning: the operation itself is
// already done.
func (r *Repository) record(id string, event any) {
	if err := r.store.AppendEvent(r.ID, id, event); err != nil {
		r.warn("history of %s: %v", id, err)
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
func (r *Repository) removeDiscarded(ctx context.Context, repo *git.Repo, entry store.Entry[store.InvocationMeta], since time.Time) (string, error) {
	id, spec := entry.ID, r.sandboxSpec(entry.ID)
	if err := r.forward(ctx, "discard", []step{
		{"tree", func() error { return r.clear(ctx, repo, r.subject(entry), since, func() error { return r.renew(id) }) }},
		{"registration", func() error { return backend(repo).Unregister(spec) }},
		{"branch", func() error { return r.deleteSandboxBranch(ctx, repo, spec) }},
		{"leftovers", func() error { return store.RemoveLeftovers(spec.Scratch) }},
		{"sandbox-dir", func() error { return r.store.RemoveSandboxTree(r.ID, id) }},
	}); err != nil {
		return "", err
	}
	return r.kept(ctx, repo, id)
}

// sandboxSpec returns the paths and the branch of the sandbox of an invocation.
func (r *Repository) sandboxSpec(id string) changeset.Spec {
	return changeset.Spec{ID: id, Tree: r.store.SandboxTreePath(r.ID, id), Branch: sandboxRef(id), Scratch: r.store.InvocationDir(r.ID, id)}
}

// deleteKeptBranch deletes the branch of a discarded sandbox, unless another worktree has it checked out. It fails if
// the trash ref does not contain all commits of the branch.
func (r *Repository) deleteSandboxBranch(ctx context.Context, repo *git.Repo, spec changeset.Spec) error {
	found, err := repo.Lookup(ctx, trashRef(spec.ID), spec.Branch)
	if err != nil {
		return err
	}
	kept, branch := found[0].OID, found[1].OID
	listing, err := repo.Worktrees(ctx)
	if err != nil {
		return err
	}
	if path := elsewhere(listing.Worktrees, spec); path != "" {
		r.warn("branch %s is checked out at %s; it stays", short(spec.Branch), path)
		return nil
	}
	if branch == "" {
		return errors.Join(repo.RemoveLost(ctx, spec.Branch), repo.SweepRef(ctx, spec.Branch))
	}
	safe, err := repo.IsAncestor(ctx, branch, kept)
	if err != nil {
		return err
	}
	if !safe {
		return errors.New("branch " + short(spec.Branch) + " has commits that " + trashRef(spec.ID) + " does not; it stays")
	}
	return backend(repo).DeleteBranch(ctx, spec, branch)
}

// checkedOutElsewhere returns the path of another worktree that has the branch of the sandbox checked out; empty when
// there is none.
func elsewhere(worktrees []git.Worktree, spec changeset.Spec) string {
	for _, w := range worktrees {
		if w.Branch == spec.Branch && w.Path != spec.Tree {
			return w.Path
		}
	}
	return ""
}
