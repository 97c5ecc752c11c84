package changeset

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/layer"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// Overlay is the backend that uses overlays. The lower directories of a tree are layers, which all trees of the same commit
// share, so that creating one takes the same time however many files it has. The tree exists only behind walls, where
// the overlay is mounted on Spec.Tree; outside, that directory has nothing but a marker, and git does not list the worktree.
type Overlay struct {
	Worktree

	Layers string // directory of the layers
}

// Names in Spec.OverlayDir.
const (
	upperName = "upper" // upper directory of the overlay
	workName  = "work"  // its work directory, for the kernel
	layerName = "layer" // file with the name of the layer below it
)

// Create adds the steps "tree-dir", "branch" and "registration" to the transaction, which make an empty tree.
func (b Overlay) Create(ctx context.Context, tx *undo.Tx, s Spec) error {
	return b.create(ctx, tx, s, func() error {
		tx.Undo("overlay", func(context.Context) error { return durable.RemoveTree(s.OverlayDir) })
		for _, dir := range []string{"", upperName, workName} {
			if err := os.Mkdir(filepath.Join(s.OverlayDir, dir), 0o755); err != nil {
				return err
			}
		}
		return worktree.AddUnlisted(b.Repo, b.registration(s), filepath.Join(s.OverlayDir, upperName, ".git"))
	})
}

// Fill adds the steps "layer" and "checkout" to the transaction. The first makes the layer of the commit unless there is one,
// the second puts a tree of it together.
func (b Overlay) Fill(ctx context.Context, tx *undo.Tx, s Spec) error {
	req := layer.Request{Dir: b.Layers, Tree: cmp.Or(s.TipTree, s.BaseTree), Source: s.Source, SkipLFS: s.SkipLFS}
	var base layer.Layer
	var release func() error
	if err := tx.Step(ctx, "layer", func() (err error) {
		base, _, release, err = layer.Ensure(ctx, b.Repo, req)
		return err
	}); err != nil {
		return err
	}
	// From the moment the tree names the layer, that is in use.
	err := tx.Step(ctx, "checkout", func() error {
		if err := durable.WriteFile(filepath.Join(s.OverlayDir, layerName), []byte(base.Name+"\n"), 0o644); err != nil {
			return err
		}
		// Behind the walls, the mailbox is mounted on it.
		if err := os.Mkdir(filepath.Join(s.OverlayDir, upperName, guard.AgencyDir), 0o755); err != nil {
			return err
		}
		return linkOrCopy(base.Index, filepath.Join(b.Repo.AdminDir(s.ID), "index"))
	})
	return errors.Join(err, release())
}

// Sync fsyncs the files that make up the worktree: see Worktree.Sync.
func (b Overlay) Sync(s Spec) error {
	admin, upper := b.Repo.AdminDir(s.ID), filepath.Join(s.OverlayDir, upperName)
	files, _ := worktree.RegistrationFiles(b.Repo, b.registration(s))
	files[len(files)-1] = filepath.Join(upper, ".git")
	if err := durable.Sync(append(files, admin, filepath.Dir(admin), upper, s.OverlayDir, s.Tree, filepath.Dir(s.Tree))...); err != nil {
		return err
	}
	return b.Repo.SyncRef(s.Branch)
}

// TopDirs returns the directories that hold the checked-out files of a tree.
func (b Overlay) TopDirs(s Spec) ([]string, error) {
	tree, err := OpenOverlay(s.OverlayDir, b.Layers)
	if err != nil {
		return nil, err
	}
	return tree.Lowers, nil
}

// OpenOverlay returns the directories of a tree, given its own directory and that of the layers; nil if the tree is no overlay.
func OpenOverlay(dir, layers string) (*overlay.Tree, error) {
	name, err := durable.ReadFile(filepath.Join(dir, layerName), 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	base, err := layer.Open(layers, string(bytes.TrimSpace(name)))
	if err != nil {
		return nil, err
	}
	return &overlay.Tree{Upper: filepath.Join(dir, upperName), Lowers: base.Lowers, Index: base.Index}, nil
}

// OverlayWorkDir returns the work directory of the overlay of a tree.
func OverlayWorkDir(t *overlay.Tree) string { return filepath.Join(filepath.Dir(t.Upper), workName) }

// linkOrCopy makes a file that no process writes in place a hard link to another, or a copy where that is not possible.
func linkOrCopy(from, to string) error {
	if err := os.Link(from, to); err == nil {
		return nil
	}
	return git.CopyFileWithMtime(from, to)
}
