package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// CheckoutRequest selects a snapshot and the directory to copy it to.
type CheckoutRequest struct {
	Snapshot string // required: commit, in full or as a unique prefix, or "<invocation>/<number>"
	Dir      string // required: a directory that is empty or does not exist; its parent exists
}

// CheckoutResult reports a copy of a snapshot.
type CheckoutResult struct {
	Invocation string `json:"invocation_id"`
	ID         string `json:"snapshot"`
	Ref        string `json:"ref"`
	Number     int    `json:"number"`
	Path       string `json:"path"` // absolute, symbolic links resolved
}

// Checkout creates a directory with the files of a snapshot and nothing else, or fails and leaves nothing.
// The directory belongs to no repository. It must not overlap an integration tree, a sandbox, a git directory or the
// data directory, by any spelling.
func Checkout(ctx context.Context, r *core.Repository, req CheckoutRequest) (CheckoutResult, error) {
	if req.Dir == "" {
		return CheckoutResult{}, &fault.InvalidError{What: "directory", Value: req.Dir, Want: "a path"}
	}
	snap, err := Find(ctx, r, r.Git, req.Snapshot)
	if err != nil {
		return CheckoutResult{}, err
	}
	dir, err := guard.ResolveFrom(r.CallerDir, req.Dir)
	if err != nil {
		return CheckoutResult{}, err
	}
	listing, err := worktree.List(ctx, r.Git)
	if err != nil {
		return CheckoutResult{}, err
	}
	if err := checkOutsideManaged(r, dir, listing); err != nil {
		return CheckoutResult{}, err
	}
	perm, err := checkEmptyDir(dir)
	if err != nil {
		return CheckoutResult{}, err
	}
	if err := copyFiles(ctx, r, snapshot.CopyRequest{Commit: snap.ID, Dir: dir, UntrustedConfig: !r.TrustsRepoConfig(snap.Invocation)}, perm); err != nil {
		return CheckoutResult{}, fmt.Errorf("check out snapshot %s: %w", snap.Name(), err)
	}
	return CheckoutResult{Invocation: snap.Invocation, ID: snap.ID, Ref: snap.Ref, Number: snap.Number, Path: dir}, nil
}

// checkOutsideManaged is CheckPlacement for a directory that is not managed by git-agency: it must not be in the data
// directory either, nor in any git directory.
func checkOutsideManaged(r *core.Repository, dir string, listing worktree.Listing) error {
	if err := r.CheckPlacement(dir, listing); err != nil {
		return err
	}
	place, err := guard.Locate(dir)
	if err != nil {
		return &fault.UnsafePathError{Path: dir, Why: err.Error()}
	}
	if rel := place.Relation(r.DataDir); rel != guard.Disjoint {
		return &fault.OverlapError{Path: place.Path, Relation: string(rel), Other: r.DataDir}
	}
	for above := range place.Ancestors {
		gits, err := git.IsGitDir(above)
		if err != nil {
			return &fault.UnsafePathError{Path: above, Why: err.Error()}
		}
		if gits {
			return &fault.OverlapError{Path: place.Path, Relation: string(place.Relation(above)), Other: above}
		}
	}
	return nil
}

// checkEmptyDir refuses a path that is neither an empty directory nor free. It returns the permissions of an existing
// directory; 0 when there is none.
func checkEmptyDir(dir string) (fs.FileMode, error) {
	fi, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Dir(dir)); err != nil {
			return 0, fmt.Errorf("the parent directory does not exist: %w", err)
		}
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if !fi.IsDir() {
		return 0, &fs.PathError{Op: "check out into", Path: dir, Err: syscall.ENOTDIR}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	if len(entries) > 0 {
		return 0, &fault.NotEmptyError{Path: dir}
	}
	return fi.Mode().Perm(), nil
}

// checkoutPrefix starts the name of the temporary directory of a checkout, beside its destination. A killed checkout
// leaves only that directory.
const checkoutPrefix = ".agency-checkout-"

// copyFiles is the transaction. The copy becomes visible with its last step.
func copyFiles(ctx context.Context, r *core.Repository, c snapshot.CopyRequest, perm fs.FileMode) (err error) {
	tx := r.BeginTx("snapshot checkout")
	defer func() {
		if err != nil {
			core.RollbackTx(ctx, tx)
		}
	}()
	var beside, tree string
	dir := c.Dir
	// 1. Create a private directory beside the destination, for the copy and for git's own files.
	if err := tx.Step(ctx, "directory", func() error {
		if beside, err = os.MkdirTemp(filepath.Dir(dir), checkoutPrefix); err != nil {
			return err
		}
		tx.Undo("directory", func(context.Context) error { return durable.RemoveTree(beside) })
		c.ScratchDir, tree = filepath.Join(beside, "git"), filepath.Join(beside, "tree")
		c.Dir = tree
		if err := core.CheckParentResolved(tree); err != nil { // a parent directory may have been replaced by a symbolic link
			return err
		}
		return os.Mkdir(tree, 0o777)
	}); err != nil {
		return err
	}
	// 2. Write the files.
	if err := tx.Step(ctx, "files", func() error { return snapshot.CopyFiles(ctx, r.Git, c) }); err != nil {
		return err
	}
	// 3. Refuse a copy that looks like an agency tree or a repository.
	if err := tx.Step(ctx, "inspect", func() error { return refuseMarkersAndGit(c.Commit, tree) }); err != nil {
		return err
	}
	// 4. Commit point: rename. An empty directory is replaced; anything else that was created there since is not.
	if err := tx.Step(ctx, "name", func() error {
		if err := errors.Join(core.CheckParentResolved(tree), core.CheckParentResolved(dir)); err != nil {
			return err
		}
		if err := renameOntoEmpty(tree, dir); err != nil {
			return err
		}
		tx.Undo("name", func(context.Context) error {
			if err := renameOntoEmpty(dir, tree); err != nil || perm == 0 {
				return err
			}
			return os.Mkdir(dir, perm)
		})
		return nil
	}); err != nil {
		return err
	}
	tx.Commit()
	if perm != 0 {
		err = os.Chmod(dir, perm)
	}
	if err := errors.Join(err, durable.RemoveTree(beside)); err != nil {
		r.Warn("%s was created, but not everything could be finished: %v", dir, err)
	}
	return nil
}

// renameOntoEmpty renames a directory to a path that is free or an empty directory.
func renameOntoEmpty(tree, dir string) error {
	err := syscall.Rename(tree, dir) // os.Rename refuses to replace any directory
	switch {
	case errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST):
		return &fault.NotEmptyError{Path: dir}
	case err != nil:
		return &fs.PathError{Op: "make", Path: dir, Err: err}
	}
	return nil
}

func refuseMarkersAndGit(commit, tree string) error {
	for _, name := range []string{guard.AgencyDir, ".git"} {
		if _, err := os.Lstat(filepath.Join(tree, name)); err == nil && name == guard.AgencyDir {
			return &fault.TrackedMarkerError{Commit: commit}
		} else if err == nil {
			return &fault.UnsafePathError{Path: name, Why: "is in the snapshot; it cannot be checked out"}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
