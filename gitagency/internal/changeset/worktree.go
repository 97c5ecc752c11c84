// Package changeset makes the trees that writes are kept apart in, and unmakes them. A backend
// brings steps into a transaction that somebody else runs; it decides neither where a tree goes nor
// whether it may go there, and writes no records.
//
// The one backend so far is Worktree, a linked git worktree with a branch of its own.
package changeset

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// Spec names everything that belongs to one tree. Every name in it is ours alone: its maker checked,
// under the repository lock, that nothing had it before.
type Spec struct {
	ID      string // required; also the name of git's entry for the worktree
	Tree    string // required; absolute and resolved
	Branch  string // required; full ref
	Base    string // required to create: the commit everything starts from
	Scratch string // a directory of ours on any file system, for names that live a moment
	Reason  string // for the reflog

	// What a tree that does not begin clean begins with.
	Tip   string // the commit that the branch starts at; default: Base
	Files string // the commit whose files are on disk; default: the tip
	Index string // the tree that is staged, where Files is set; default: that of the tip

	// Distrust: what the repository's own configuration names is not run for Files.
	Distrust bool
}

// Start is the commit that the branch starts at.
func (s Spec) Start() string { return cmp.Or(s.Tip, s.Base) }

// Worktree is the backend of linked git worktrees.
type Worktree struct {
	Repo *git.Repo // holding the repository lock
}

// Create brings the steps "tree-dir", "branch", "registration" and "checkout" into the transaction; in the place of the last
// one "files" and "index" for a tree that does not begin clean.
func (b Worktree) Create(ctx context.Context, tx *undo.Tx, s Spec) error {
	if err := tx.Step(ctx, "tree-dir", func() error {
		if err := os.Mkdir(s.Tree, 0o755); err != nil {
			return err
		}
		tx.Undo("tree-dir", func(context.Context) error { return durable.RemoveTree(s.Tree) })
		return nil
	}); err != nil {
		return err
	}
	if err := tx.Step(ctx, "branch", func() error {
		err := b.Repo.CreateRef(ctx, s.Branch, s.Start(), s.Reason)
		if !git.Refused(err) { // what git refused to make is somebody else's, and stays
			tx.Undo("branch", func(ctx context.Context) error { return b.DeleteBranch(ctx, s, s.Start()) })
		}
		return err
	}); err != nil {
		return err
	}
	if err := tx.Step(ctx, "registration", func() error {
		tx.Undo("registration", func(context.Context) error { return b.Unregister(s) })
		return b.Repo.AddWorktree(ctx, b.registration(s))
	}); err != nil {
		return err
	}
	if s.Files == "" {
		return tx.Step(ctx, "checkout", func() error { // undone with the tree it fills
			return b.Repo.Checkout(ctx, b.registration(s), s.Start())
		})
	}
	copying := git.Copying{Commit: s.Files, Dir: s.Tree, Scratch: s.Scratch + "/git", Name: b.registration(s).Name, Distrust: s.Distrust}
	if err := tx.Step(ctx, "files", func() error {
		tx.Undo("files", func(context.Context) error { return durable.RemoveTree(copying.Scratch) })
		return b.Repo.CopyOut(ctx, copying)
	}); err != nil {
		return err
	}
	return tx.Step(ctx, "index", func() error {
		return b.Repo.StageCopied(ctx, b.registration(s), copying, cmp.Or(s.Index, s.Start()))
	})
}

// Sync makes durable what git wrote without fsync and what the repository would break without: the
// files that tie tree and repository together. Contents of the tree need not be: git status shows
// what is lost, git checkout restores it.
func (b Worktree) Sync(s Spec) error {
	files, dirs := b.Repo.RegistrationFiles(b.registration(s))
	if err := durable.Sync(append(files, dirs...)...); err != nil {
		return err
	}
	return b.Repo.SyncRef(s.Branch)
}

// Remove unmakes a tree and everything git knows of it except its branch, in whatever state they
// are. What is not there is fine.
func (b Worktree) Remove(s Spec) error {
	if err := durable.RemoveTree(s.Tree); err != nil {
		return err
	}
	return b.Unregister(s)
}

// Abandon unmakes what an interrupted creation left: Create, backwards. A branch that has moved since
// says that it was not interrupted but worked in; then nothing is touched.
func (b Worktree) Abandon(ctx context.Context, s Spec) error {
	found, err := b.Repo.Lookup(ctx, s.Branch)
	if err != nil {
		return err
	}
	if tip := found[0].OID; tip != "" && tip != s.Start() {
		return fmt.Errorf("%s has moved to %s since it was made", s.Branch, tip)
	}
	if err := b.Remove(s); err != nil {
		return err
	}
	return b.DeleteBranch(ctx, s, s.Start())
}

// DeleteBranch deletes the branch if it is still at that commit, and what a killed git left of it.
func (b Worktree) DeleteBranch(ctx context.Context, s Spec, at string) error {
	return b.Repo.RemoveRef(ctx, s.Branch, at)
}

// Unregister makes git forget a tree that is gone, or about to go.
func (b Worktree) Unregister(s Spec) error {
	return b.Repo.Forget(b.registration(s))
}

// Withdraw is Unregister but for what takes time, which RemoveWithdrawn does. Nobody has to hold a lock for that.
func (b Worktree) Withdraw(s Spec) error {
	return b.Repo.Withdraw(b.registration(s))
}

// RemoveWithdrawn removes what Withdraw has left.
func (b Worktree) RemoveWithdrawn(s Spec) error { return b.Repo.RemoveWithdrawn(s.ID) }

// Registered reports whether Unregister would find something, given what git has registered. A link that
// a creation needed for a moment counts too.
func (b Worktree) Registered(s Spec, registered map[string]string) bool {
	w := b.registration(s)
	fi, err := os.Lstat(w.Link)
	return len(w.In(registered)) > 0 || err == nil && fi.Mode()&fs.ModeSymlink != 0
}

func (b Worktree) registration(s Spec) git.Registration {
	return git.Registration{Name: s.ID, Tree: s.Tree, Branch: s.Branch, Link: s.Scratch + "/" + s.ID}
}
