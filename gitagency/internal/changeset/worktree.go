// Package changeset creates and removes the isolated trees that sandboxes write to. A backend adds steps to a
// transaction that its caller runs; it must never decide where a tree goes or whether it may go there, and it writes no
// records.
//
// There are three backends. Worktree makes a linked git worktree with its own branch. Overlay makes one that shares the files
// of its commit with others, and that exists only behind walls. Clone makes a tree with a git directory of its own,
// which borrows the objects of the repository.
package changeset

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/checkout"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// Backend creates trees of one kind. Everything that is created is removed by Worktree.Remove, whatever the kind.
type Backend interface {
	// Create makes an empty tree, its branch and git's entry for it, in steps of a transaction, under the repository lock.
	Create(ctx context.Context, tx *undo.Tx, s Spec) error
	// Fill writes the files of a tree that Create made, in steps of a transaction. It needs no lock.
	Fill(ctx context.Context, tx *undo.Tx, s Spec) error
	// TopDirs returns the directories that hold the checked-out files of a tree.
	TopDirs(s Spec) ([]string, error)
	// Sync fsyncs the files without which the repository would be broken. It must be called before anything else can have
	// changed the tree.
	Sync(s Spec) error
}

// Spec names everything that belongs to one tree. All names in it are ours alone: the code that filled it checked,
// under the repository lock, that they were unused.
type Spec struct {
	ID      string // required; also the name of the worktree's entry in $GIT_DIR/worktrees
	Tree    string // path of the worktree; required, absolute, symlinks resolved
	Branch  string // full ref name; required
	Base    string // commit that the work starts from; required by Create
	Scratch string // our directory on any file system, for short-lived names

	// OverlayDir has the upper and work directories of an overlay and the name of its layer. It is empty if the tree cannot be one.
	OverlayDir string

	// CloneDir has the state of the exchange between the git directory of a clone and the repository. It is empty if the tree
	// cannot be a clone.
	CloneDir string

	Reason string // reflog message

	// Initial state of a tree that does not start as a clean checkout of Base.
	Tip         string // commit that the branch starts at; default: Base
	FilesCommit string // commit whose files are written to disk; default: a checkout of Tip
	IndexTree   string // tree to stage, with FilesCommit; default: the tree of Tip

	// SkipLFS: an agent may have made the commit, so no object of Git LFS is downloaded from where its .lfsconfig says.
	SkipLFS bool

	BaseTree string          // tree of Base; required by Overlay
	Source   checkout.Source // worktree whose unchanged files are copied instead of checked out; the zero value for none

	// UntrustedConfig: programs named by the repository's own configuration (filters) are not run for FilesCommit.
	UntrustedConfig bool
}

// StartCommit returns the commit that the branch starts at.
func (s Spec) StartCommit() string { return cmp.Or(s.Tip, s.Base) }

// Worktree is the backend that uses linked git worktrees.
type Worktree struct {
	Repo   *git.Repo       // required; the caller holds the repository lock, unless a method says otherwise
	Author object.Identity // of the commits that keep objects
}

// Create adds the steps "tree-dir", "branch" and "registration" to the transaction, which make an empty tree.
func (b Worktree) Create(ctx context.Context, tx *undo.Tx, s Spec) error {
	return b.create(ctx, tx, s, nil, func() error { return worktree.Add(ctx, b.Repo, b.registration(s)) })
}

// create is Create with the functions that make refs besides the branch, which may be nil, and register the worktree.
func (b Worktree) create(ctx context.Context, tx *undo.Tx, s Spec, moreRefs, register func() error) error {
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
		err := b.Repo.CreateRef(ctx, s.Branch, s.StartCommit(), s.Reason)
		if !git.ChangedNothing(err) { // a ref that git refused to create belongs to another process, and stays
			tx.Undo("branch", func(ctx context.Context) error { return b.DeleteBranch(ctx, s, s.StartCommit()) })
		}
		return err
	}); err != nil {
		return err
	}
	if moreRefs != nil {
		if err := moreRefs(); err != nil {
			return err
		}
	}
	return tx.Step(ctx, "registration", func() error {
		tx.Undo("registration", func(context.Context) error { return b.Unregister(s) })
		return register()
	})
}

// TopDirs returns the directory of the tree.
func (b Worktree) TopDirs(s Spec) ([]string, error) { return []string{s.Tree}, nil }

// Fill adds the step "checkout" to the transaction, which writes the files of a tree that Create made; with FilesCommit, the
// steps "files" and "index". It needs no repository lock.
func (b Worktree) Fill(ctx context.Context, tx *undo.Tx, s Spec) error {
	return b.fill(ctx, tx, s, b.registration(s))
}

// fill is Fill for a tree with this entry.
func (b Worktree) fill(ctx context.Context, tx *undo.Tx, s Spec, entry worktree.Registration) error {
	if s.FilesCommit == "" {
		return tx.Step(ctx, "checkout", func() error { // undone by removing the tree
			req := checkout.Request{Worktree: entry, Commit: s.StartCommit(), Source: s.Source, SkipLFS: s.SkipLFS}
			if s.Tip == "" {
				req.Tree = s.BaseTree
			}
			return checkout.Fill(ctx, b.Repo, req)
		})
	}
	copying := snapshot.CopyRequest{Commit: s.FilesCommit, Dir: s.Tree, ScratchDir: s.Scratch + "/git", WorktreeName: entry.Name, UntrustedConfig: s.UntrustedConfig}
	if err := tx.Step(ctx, "files", func() error {
		tx.Undo("files", func(context.Context) error { return durable.RemoveTree(copying.ScratchDir) })
		return snapshot.CopyFiles(ctx, b.Repo, copying)
	}); err != nil {
		return err
	}
	return tx.Step(ctx, "index", func() error {
		return snapshot.WriteCopiedIndex(ctx, b.Repo, entry, copying, cmp.Or(s.IndexTree, s.StartCommit()))
	})
}

// Sync fsyncs the files that link worktree and repository, which git writes without fsync and without which the
// repository would be broken. The contents of the worktree need no fsync: git status shows a loss and git checkout
// restores it. It must be called before anything else can have changed the tree.
func (b Worktree) Sync(s Spec) error {
	files, dirs := worktree.RegistrationFiles(b.Repo, b.registration(s))
	if err := durable.Sync(append(files, dirs...)...); err != nil {
		return err
	}
	if err := b.Repo.SyncRef(s.Branch); err != nil || s.FilesCommit != "" { // an index of other content than the files is left as it is
		return err
	}
	return worktree.SettleIndex(b.Repo, b.registration(s))
}

// Remove removes a tree and all git data about it except its branch, whatever state they are in. Missing parts are not
// an error.
func (b Worktree) Remove(s Spec) error {
	if err := durable.RemoveTree(s.Tree); err != nil {
		return err
	}
	for _, dir := range []string{s.OverlayDir, s.CloneDir} {
		if dir == "" {
			continue
		}
		if err := durable.RemoveTree(dir); err != nil {
			return err
		}
	}
	return b.Unregister(s)
}

// RemoveIncomplete removes the remains of an interrupted Create. If the branch has moved since, the worktree is in use
// and not incomplete: then RemoveIncomplete fails and touches nothing.
func (b Worktree) RemoveIncomplete(ctx context.Context, s Spec) error {
	found, err := b.Repo.Lookup(ctx, s.Branch)
	if err != nil {
		return err
	}
	if tip := found[0].OID; tip != "" && tip != s.StartCommit() {
		return fmt.Errorf("%s has moved to %s since it was created", s.Branch, tip)
	}
	if err := b.Remove(s); err != nil {
		return err
	}
	if err := b.Unpin(ctx, s.ID); err != nil {
		return err
	}
	return b.DeleteBranch(ctx, s, s.StartCommit())
}

// DeleteBranch deletes the branch if it is still at that commit, and removes the files that a killed git left of it.
func (b Worktree) DeleteBranch(ctx context.Context, s Spec, at string) error {
	return b.Repo.DeleteOwnedRef(ctx, s.Branch, at)
}

// Unregister removes git's entry for a worktree that is gone or about to be removed.
func (b Worktree) Unregister(s Spec) error {
	return worktree.Unregister(b.Repo, b.registration(s))
}

// BeginUnregister is Unregister without its slow part, which FinishUnregister does later. FinishUnregister
// needs no lock.
func (b Worktree) BeginUnregister(s Spec) error {
	return worktree.UnregisterDeferred(b.Repo, b.registration(s))
}

// FinishUnregister removes the files that BeginUnregister has left.
func (b Worktree) FinishUnregister(s Spec) error { return worktree.RemoveUnregistered(b.Repo, s.ID) }

// IsRegistered reports whether Unregister would find something, given the worktrees registered with git. The temporary
// symlink of a creation counts, too.
func (b Worktree) IsRegistered(s Spec, registered map[string]string) bool {
	w := b.registration(s)
	fi, err := os.Lstat(w.Link)
	return len(w.NamesIn(registered)) > 0 || err == nil && fi.Mode()&fs.ModeSymlink != 0
}

func (b Worktree) registration(s Spec) worktree.Registration {
	return worktree.Registration{Name: s.ID, Tree: s.Tree, Branch: s.Branch, Link: s.Scratch + "/" + s.ID}
}
