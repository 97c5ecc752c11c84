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

// Discarded is what is left of a discarded invocation.
type Discarded struct {
	ID       string `json:"invocation_id"`
	TrashRef string `json:"trash_ref"`    // where everything that was there is kept; empty when there was nothing
	Commit   string `json:"trash_commit"` // what it points at
	Already  bool   `json:"already"`      // it was discarded before
	Undone   bool   `json:"undone"`       // it was an interrupted creation; nothing of it is left, not even a record
	Commands int    `json:"commands"`     // how many commands still ran in it, and were ended
}

// Discard ends an invocation: its tree and its branch go, its record and a ref to everything that
// was there, also uncommitted and untracked, stay. Doing it twice is fine, and finishes what was
// interrupted. Of a creation that was interrupted, it removes every trace.
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
	entry := r.store.Invocation(r.ID, inv.ID, nil) // it may have changed while we waited
	if _, there := store.Taken(r.store.InvocationDir(r.ID, inv.ID), r.store.SandboxDir(r.ID, inv.ID)); !there {
		return Discarded{ID: inv.ID, Already: !inv.Broken, Undone: inv.Broken}, nil // somebody else has just pruned or undone it
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

// abandonSandbox undoes an interrupted start.
func (r *Repository) abandonSandbox(ctx context.Context, repo *git.Repo, id string, intent store.Intent) error {
	return r.abandon(ctx, repo, r.store.InvocationDir(r.ID, id), changeset.Spec{
		ID: id, Tree: r.store.SandboxTreePath(r.ID, id), Branch: sandboxRef(id),
		Base: intent.Base, Tip: intent.Tip, Files: intent.FromSnapshot,
	})
}

// end discards an invocation that has a record, or finishes what ended it before.
func (r *Repository) end(ctx context.Context, repo *git.Repo, entry store.Entry[store.InvocationMeta]) (Discarded, error) {
	if err := checkReal(r.store.SandboxTreePath(r.ID, entry.ID)); err != nil {
		return Discarded{}, err
	}
	already, how := ended(entry.Record), store.Discarded
	if already {
		how = entry.Record.Landing
	} else if err := r.checkNotMoved(repo, entry.ID, r.store.SandboxTreePath(r.ID, entry.ID)); err != nil {
		return Discarded{}, err // one that is gone has no claim on its name any more
	}
	if err := r.mayVacate(ctx, repo, r.subject(entry)); err != nil {
		return Discarded{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	vacant, err := r.vacate(ctx, entry.ID)
	if err != nil {
		return Discarded{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	defer vacant.close()
	r.settle(ctx, entry.ID)
	r.sandboxOf(entry.ID).finishForGood(ctx, repo, vacant)
	if err := r.sandboxOf(entry.ID).emptyLayer(ctx, repo, entry.Record.Primitives, vacant.inside); err != nil {
		return Discarded{}, fmt.Errorf("discard %s: %w", entry.ID, err)
	}
	since := time.Now()
	if already { // nobody knows when the one that was interrupted began
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
	d := Discarded{ID: entry.ID, Commit: commit, Already: already, Commands: vacant.commands}
	if commit != "" {
		d.TrashRef = trashRef(entry.ID)
	}
	return d, nil
}

// subject says what belongs to the sandbox of an invocation.
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

// holdsWork reports whether there is a tree, a branch that no ref keeps, or an entry of git's that may lead
// to commits although its tree is gone. After a discard that was interrupted, or with an agent that went on
// writing, there is.
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
	entry := !store.IsDir(store.Aside(spec.Tree)) && backend(repo).Registered(spec, registered) // else clear looks at it
	return store.IsDir(spec.Tree) || !found[1].Missing() && !held || entry, nil
}

// giveUp keeps everything that is in the sandbox under a ref and writes down that it is discarded.
// Until the record says so nothing has happened; afterwards only removing is left.
func (r *Repository) giveUp(ctx context.Context, repo *git.Repo, entry store.Entry[store.InvocationMeta]) (err error) {
	tx := r.begin("discard")
	defer func() {
		if err != nil {
			rollback(ctx, tx)
		}
	}()
	// 1. What is there, as a commit nobody points at yet.
	var captured git.Captured
	if err := tx.Step(ctx, "capture", func() error {
		captured, err = r.capture(ctx, repo, r.subject(entry))
		return err
	}); err != nil {
		return err
	}
	// 2. The ref that keeps it.
	if err := tx.Step(ctx, "trash", func() error {
		return r.keep(ctx, tx, repo, trashRef(entry.ID), captured.Commit)
	}); err != nil {
		return err
	}
	// 3. The commit point.
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

// keepMore adds what came into a sandbox after it had ended to what was kept of it then; nothing of that
// is replaced. The record is renewed first: whoever judges by its date when the ref may go must never
// take what was only just kept for old, also when we do not get any further.
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
		return err // nothing came
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

// renew writes down that there was work in a sandbox until now.
func (r *Repository) renew(id string) error {
	return r.store.UpdateInvocationMeta(r.ID, id, func(m *store.InvocationMeta) {
		now := r.now()
		m.FinishedAt = &now
	})
}

// note adds to the history of an invocation what a ref keeps of it now.
func (r *Repository) note(id, event, commit string) {
	r.record(id, discardEvent{r.now(), event, trashRef(id), commit})
}

// record adds a line to the history of an invocation. What is done is done, also if that cannot be written.
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

// removeDiscarded takes away what a discarded invocation has no use for. Each part may be gone
// already. It returns what the trash ref keeps.
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

// sandboxSpec names everything that belongs to the sandbox of an invocation.
func (r *Repository) sandboxSpec(id string) changeset.Spec {
	return changeset.Spec{ID: id, Tree: r.store.SandboxTreePath(r.ID, id), Branch: sandboxRef(id), Scratch: r.store.InvocationDir(r.ID, id)}
}

// deleteSandboxBranch deletes the branch of a discarded sandbox, if the trash ref holds all of it and
// nobody has it checked out.
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
	if at := elsewhere(listing.Worktrees, spec); at != "" {
		r.warn("branch %s is checked out at %s; it stays", short(spec.Branch), at)
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

// elsewhere is where the branch of a sandbox is checked out, but for the sandbox itself; empty when it is
// nowhere.
func elsewhere(worktrees []git.Worktree, spec changeset.Spec) string {
	for _, w := range worktrees {
		if w.Branch == spec.Branch && w.Path != spec.Tree {
			return w.Path
		}
	}
	return ""
}
