package gitagency

import (
	"context"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// toolIdentity is who commits that no person made are by; they must not need a configured user.
var toolIdentity = git.Identity{Name: "git-agency", Email: "git-agency@localhost"}

// capture writes down what is in a tree that is about to go, as a commit nobody points at yet. What was
// kept of it before stays part of that.
func (r *Repository) capture(ctx context.Context, repo *git.Repo, s git.Snapshot) (git.Captured, error) {
	if !store.IsDir(s.Tree) {
		s.Tree = "" // gone, or a link to what was never ours
	}
	s.Omit, s.Author = guard.Dir, toolIdentity
	return repo.Capture(ctx, s)
}

// kept is the commit that a trash ref points at; empty when there is none.
func (r *Repository) kept(ctx context.Context, repo *git.Repo, id string) (string, error) {
	found, err := repo.Lookup(ctx, trashRef(id))
	if err != nil {
		return "", err
	}
	return found[0].OID, nil
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
	if err := repo.MoveRef(ctx, ref, commit, old, "agency: keep what was there"); err != nil {
		return err
	}
	return repo.SyncRef(ref) // what it keeps is about to be deleted elsewhere
}

// checkNotMoved refuses to end what git has elsewhere than where it belongs: "git worktree move" is
// known to nobody but git.
func (r *Repository) checkNotMoved(repo *git.Repo, id, tree string) error {
	at := repo.RegisteredAt(id)
	if at == "" || !store.IsDir(at) {
		return nil
	}
	if real, err := guard.Resolve(at); err != nil || real != tree {
		return &MovedError{ID: id, From: tree, To: at}
	}
	return nil
}
