package changeset

import (
	"context"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/clone"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// Clone is the backend that gives a tree a git directory of its own, which borrows the objects of the repository. The repository
// has the branch of the tree and an entry that git does not list, with HEAD and index as the last import left
// them; see package handoff.
type Clone struct {
	Worktree

	Source    clone.Source
	Without   []string // prefixes of full refs of branches that the clone does not get
	Hardlinks bool     // hard links to the objects of the repository instead of borrowing them
}

// BaseRef returns the ref that keeps the commit that a clone started from, with all objects that it borrows, from being pruned.
func BaseRef(id string) string { return "refs/agency/base/" + id }

// PinBase creates the BaseRef of a tree.
func (b Clone) PinBase(ctx context.Context, s Spec) error {
	return b.Repo.CreateRef(ctx, BaseRef(s.ID), s.Base, s.Reason)
}

// Create adds the steps "tree-dir", "branch", "base", "staged" and "registration" to the transaction, which make an empty tree.
func (b Clone) Create(ctx context.Context, tx *undo.Tx, s Spec) error {
	pin := func() error {
		if err := tx.Step(ctx, "base", func() error {
			err := b.PinBase(ctx, s)
			if !git.ChangedNothing(err) {
				tx.Undo("base", func(ctx context.Context) error { return RemoveRef(ctx, b.Repo, BaseRef(s.ID)) })
			}
			return err
		}); err != nil {
			return err
		}
		return b.keepIndexTree(ctx, tx, s)
	}
	return b.create(ctx, tx, s, pin, func() error {
		tx.Undo("clone", func(context.Context) error { return durable.RemoveTree(s.CloneDir) })
		if err := os.Mkdir(s.CloneDir, 0o700); err != nil {
			return err
		}
		return worktree.AddUnlisted(b.Repo, b.registration(s))
	})
}

// Fill adds the steps of Worktree.Fill and the step "clone" to the transaction, which makes the git directory.
func (b Clone) Fill(ctx context.Context, tx *undo.Tx, s Spec) error {
	if err := b.fill(ctx, tx, s, b.registration(s)); err != nil {
		return err
	}
	return tx.Step(ctx, "clone", func() error { // undone by removing the tree
		if s.FilesCommit == "" { // an index of other content than the files is left as it is
			if err := worktree.SettleIndex(b.Repo, b.registration(s)); err != nil {
				return err
			}
		}
		return clone.Make(ctx, b.Repo, clone.Request{
			Dir: CloneGitDir(s), Branch: s.Branch, Tip: s.StartCommit(), Admin: b.Repo.AdminDir(s.ID), Source: b.Source, Without: b.Without, Hardlinks: b.Hardlinks,
		})
	})
}

// CloneGitDir returns the path of the git directory of a tree that is a clone.
func CloneGitDir(s Spec) string { return filepath.Join(s.Tree, ".git") }

// Sync fsyncs the files without which the repository or the clone would be broken: see Worktree.Sync.
func (b Clone) Sync(s Spec) error {
	files, dirs := worktree.RegistrationFiles(b.Repo, b.registration(s))
	files = append(files, clone.Files(CloneGitDir(s), s.Branch)...)
	if err := durable.Sync(append(append(files, s.CloneDir), dirs...)...); err != nil {
		return err
	}
	if err := b.Repo.SyncRef(BaseRef(s.ID)); err != nil {
		return err
	}
	return b.Repo.SyncRef(s.Branch)
}

// registration returns the unlisted entry of a tree.
func (b Clone) registration(s Spec) worktree.Registration {
	w := b.Worktree.registration(s)
	w.DotGit = filepath.Join(s.CloneDir, ".git")
	return w
}
