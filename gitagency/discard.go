package gitagency

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// Discarded is what is left of a discarded invocation.
type Discarded struct {
	ID       string `json:"invocation_id"`
	TrashRef string `json:"trash_ref"`    // where everything that was there is kept; empty when there was nothing
	Commit   string `json:"trash_commit"` // what it points at
	Already  bool   `json:"already"`      // it was discarded before
	Undone   bool   `json:"undone"`       // it was an interrupted creation; nothing of it is left, not even a record
}

// trashRef is the ref that keeps what was in a tree that is gone.
func trashRef(id string) string { return "refs/agency/trash/" + id }

// toolIdentity is who commits that no person made are by; they must not need a configured user.
var toolIdentity = git.Identity{Name: "git-agency", Email: "git-agency@localhost"}

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

	switch {
	case entry.Broken != store.Whole && entry.Intent != nil:
		err = r.abandon(ctx, repo, r.store.InvocationDir(r.ID, entry.ID), changeset.Spec{
			ID: entry.ID, Tree: r.store.SandboxTreePath(r.ID, entry.ID), Branch: sandboxRef(entry.ID), Base: entry.Intent.Base,
		})
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

// end discards an invocation that has a record, or finishes doing so.
func (r *Repository) end(ctx context.Context, repo *git.Repo, entry store.Entry[store.InvocationMeta]) (Discarded, error) {
	if err := checkReal(r.store.SandboxTreePath(r.ID, entry.ID)); err != nil {
		return Discarded{}, err
	}
	if at := repo.RegisteredAt(entry.ID); at != "" && store.IsDir(at) {
		real, err := guard.Resolve(at)
		if err != nil || real != r.store.SandboxTreePath(r.ID, entry.ID) {
			return Discarded{}, &MovedError{ID: entry.ID, From: r.store.SandboxTreePath(r.ID, entry.ID), To: at}
		}
	}
	already := entry.Record.Landing == store.Discarded
	keeps, err := r.holdsWork(ctx, repo, entry.ID)
	if err != nil {
		return Discarded{}, err
	}
	if !already || keeps {
		if err := r.giveUp(ctx, repo, entry); err != nil {
			return Discarded{}, fmt.Errorf("discard %s: %w", entry.ID, err)
		}
	}
	commit, err := r.removeDiscarded(ctx, repo, entry.ID)
	if err != nil {
		return Discarded{}, &CleanupError{Kind: "invocation", ID: entry.ID, Done: store.Discarded, Err: err}
	}
	d := Discarded{ID: entry.ID, Commit: commit, Already: already}
	if commit != "" {
		d.TrashRef = trashRef(entry.ID)
	}
	return d, nil
}

// holdsWork reports whether there is a tree, or a branch that no ref keeps. After a discard that was
// interrupted, or with an agent that went on writing, there is.
func (r *Repository) holdsWork(ctx context.Context, repo *git.Repo, id string) (bool, error) {
	found, err := repo.Lookup(ctx, trashRef(id), sandboxRef(id))
	if err != nil {
		return false, err
	}
	return store.IsDir(r.store.SandboxTreePath(r.ID, id)) || found[0].Missing() && !found[1].Missing(), nil
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
	tree := r.store.SandboxTreePath(r.ID, entry.ID)
	if !store.IsDir(tree) {
		tree = "" // gone, or a link to what was never ours
	}
	// 1. What is there, as a commit nobody points at yet. What an earlier discard kept stays kept.
	var captured git.Captured
	if err := tx.Step(ctx, "capture", func() error {
		onto := ""
		if entry.Record.Landing == store.Discarded {
			kept, err := repo.Lookup(ctx, trashRef(entry.ID))
			if err != nil {
				return err
			}
			onto = kept[0].OID
		}
		captured, err = repo.Capture(ctx, git.Snapshot{
			Name: entry.ID, Tree: tree, Branch: sandboxRef(entry.ID), Base: entry.Record.BaseCommit, Onto: onto,
			Omit: guard.Dir, Author: toolIdentity,
			Message: fmt.Sprintf("agency: what was in sandbox %s when it was discarded\n\nAgency-Invocation: %s\nAgency-Base: %s",
				entry.ID, entry.ID, entry.Record.BaseCommit),
		})
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
	if err := r.store.AppendEvent(r.ID, entry.ID, discardEvent{r.now(), "discard", trashRef(entry.ID), captured.Commit}); err != nil {
		r.warn("history of %s: %v", entry.ID, err)
	}
	return nil
}

type discardEvent struct {
	Time   time.Time `json:"time"`
	Event  string    `json:"event"`
	Ref    string    `json:"trash_ref"`
	Commit string    `json:"trash_commit"`
}

// keep points a ref at a commit and registers how to take that back.
func (r *Repository) keep(ctx context.Context, tx *undo.Tx, repo *git.Repo, ref, commit string) error {
	if commit == "" {
		return nil // there was nothing at all
	}
	if err := repo.SweepRef(ctx, ref); err != nil { // of an attempt that was killed
		return err
	}
	found, err := repo.Lookup(ctx, ref)
	if err != nil {
		return err
	}
	old := found[0].OID
	if old == commit {
		return nil
	}
	if old == "" {
		old = strings.Repeat("0", len(commit))
	}
	tx.Undo("trash", func(ctx context.Context) error {
		now, err := repo.Lookup(ctx, ref)
		switch {
		case err != nil || now[0].OID != commit:
			return err
		case found[0].Missing():
			return repo.DeleteRef(ctx, ref, commit)
		}
		return repo.MoveRef(ctx, ref, old, commit, "agency: undo")
	})
	return repo.MoveRef(ctx, ref, commit, old, "agency: keep what was there")
}

// removeDiscarded takes away what a discarded invocation has no use for. Each part may be gone
// already: this is also how an interrupted discard is finished. It returns what the trash ref keeps.
func (r *Repository) removeDiscarded(ctx context.Context, repo *git.Repo, id string) (commit string, err error) {
	tx := r.begin("discard") // nothing registers an undo: from here there is only forwards
	spec := changeset.Spec{ID: id, Tree: r.store.SandboxTreePath(r.ID, id), Branch: sandboxRef(id), Scratch: r.store.InvocationDir(r.ID, id)}
	backend := changeset.Worktree{Repo: repo}

	found, err := repo.Lookup(ctx, trashRef(id), spec.Branch)
	if err != nil {
		return "", err
	}
	kept, branch := found[0].OID, found[1].OID
	if err := tx.Step(ctx, "tree", func() error { return r.store.RemoveSandboxTree(r.ID, id) }); err != nil {
		return "", err
	}
	if err := tx.Step(ctx, "registration", func() error { return backend.Remove(spec) }); err != nil {
		return "", err
	}
	return kept, tx.Step(ctx, "branch", func() error {
		if branch == "" {
			return repo.SweepRef(ctx, spec.Branch)
		}
		safe, err := repo.IsAncestor(ctx, branch, kept)
		if err != nil {
			return err
		}
		if !safe {
			return errors.New("branch " + strings.TrimPrefix(spec.Branch, "refs/heads/") + " has commits that " + trashRef(id) + " does not; it stays")
		}
		return backend.DeleteBranch(ctx, spec, branch)
	})
}
