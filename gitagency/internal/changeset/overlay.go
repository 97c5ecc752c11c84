package changeset

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/layer"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
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

	// UsedLayers returns the names of the layers that trees use.
	UsedLayers func() (map[string]bool, error)
}

// Names in Spec.OverlayDir.
const (
	upperName = "upper" // upper directory of the overlay
	workName  = "work"  // its work directory, for the kernel
	layerName = "layer" // file with the name of the layer below it
)

// Create adds the steps "tree-dir", "branch", "staged" and "registration" to the transaction, which make an empty tree.
func (b Overlay) Create(ctx context.Context, tx *undo.Tx, s Spec) error {
	return b.create(ctx, tx, s, func() error { return b.keepIndexTree(ctx, tx, s) }, func() error {
		tx.Undo("overlay", func(context.Context) error { return durable.RemoveTree(s.OverlayDir) })
		for _, dir := range []string{"", upperName, workName} {
			if err := os.Mkdir(filepath.Join(s.OverlayDir, dir), 0o755); err != nil {
				return err
			}
		}
		return worktree.AddUnlisted(b.Repo, b.registration(s))
	})
}

// Fill adds the steps "layer", "files" and "index" to the transaction. The first makes the layer of the base commit unless there
// is one; the others write the differences to the base commit, which a clean checkout of it does not have.
func (b Overlay) Fill(ctx context.Context, tx *undo.Tx, s Spec) error {
	var base layer.Layer
	if err := tx.Step(ctx, "layer", func() error {
		found, made, release, err := layer.Ensure(ctx, b.Repo, layer.Request{Dir: b.Layers, Tree: s.BaseTree, Source: s.Source, SkipLFS: s.SkipLFS})
		if err != nil {
			return err
		}
		base = found
		if made {
			tx.Undo("layer", func(ctx context.Context) error { return b.removeLayer(ctx, s, base.Name) })
		}
		// From now on the layer is in use: see UsedLayer.
		return errors.Join(UseLayer(s.OverlayDir, base.Name), release())
	}); err != nil {
		return err
	}
	upper, files := filepath.Join(s.OverlayDir, upperName), cmp.Or(s.FilesCommit, s.Tip)
	copying := snapshot.CopyRequest{Commit: files, Dir: upper, ScratchDir: s.Scratch + "/git", WorktreeName: s.ID, UntrustedConfig: s.UntrustedConfig}
	if err := tx.Step(ctx, "files", func() error {
		// Behind the walls, the mailbox is mounted on it.
		if err := os.Mkdir(filepath.Join(upper, guard.AgencyDir), 0o755); err != nil || files == "" {
			return err
		}
		tx.Undo("files", func(context.Context) error { return durable.RemoveTree(copying.ScratchDir) })
		return b.writeDelta(ctx, base, s, copying)
	}); err != nil {
		return err
	}
	return tx.Step(ctx, "index", func() error {
		if files == "" {
			return linkOrCopy(base.Index, filepath.Join(b.Repo.AdminDir(s.ID), "index"))
		}
		return snapshot.WriteCopiedIndex(ctx, b.Repo, b.registration(s), copying, cmp.Or(s.IndexTree, s.StartCommit()))
	})
}

// removeLayer removes the layer that a failed creation made, unless another tree uses it by now.
func (b Overlay) removeLayer(ctx context.Context, s Spec, name string) error {
	if err := durable.RemoveIfExists(filepath.Join(s.OverlayDir, layerName)); err != nil {
		return err
	}
	_, err := layer.Prune(ctx, layer.PruneRequest{Dir: b.Layers, Before: time.Now().Add(time.Hour), Only: name, Used: b.UsedLayers})
	return err
}

// writeDelta writes the files in which a commit differs from a layer, and the index of all of its files.
func (b Overlay) writeDelta(ctx context.Context, base layer.Layer, s Spec, c snapshot.CopyRequest) error {
	found, err := b.Repo.Lookup(ctx, c.Commit+"^{tree}")
	if err != nil {
		return err
	}
	if err := os.Mkdir(c.ScratchDir, 0o700); err != nil {
		return err
	}
	return base.Delta(ctx, b.Repo, layer.DeltaRequest{
		Dir: c.Dir, Index: filepath.Join(c.ScratchDir, "index"), Tree: found[0].OID, SkipLFS: s.SkipLFS, UntrustedConfig: c.UntrustedConfig,
	})
}

// Sync fsyncs the files that make up the worktree: see Worktree.Sync.
func (b Overlay) Sync(s Spec) error {
	admin, upper := b.Repo.AdminDir(s.ID), filepath.Join(s.OverlayDir, upperName)
	files, _ := worktree.RegistrationFiles(b.Repo, b.registration(s))
	if err := durable.Sync(append(files, admin, filepath.Dir(admin), upper, s.OverlayDir, s.Tree, filepath.Dir(s.Tree))...); err != nil {
		return err
	}
	return b.Repo.SyncRef(s.Branch)
}

// registration returns the unlisted entry of a tree.
func (b Overlay) registration(s Spec) worktree.Registration {
	w := b.Worktree.registration(s)
	w.DotGit = filepath.Join(s.OverlayDir, upperName, ".git")
	return w
}

// Registration returns git's entry of a tree that may be an overlay or a clone.
func (b Overlay) Registration(s Spec) (worktree.Registration, error) {
	if s.CloneDir != "" && durable.IsDir(s.CloneDir) {
		return Clone{Worktree: b.Worktree}.registration(s), nil
	}
	if name, err := UsedLayer(s.OverlayDir); err != nil || name == "" {
		return b.Worktree.registration(s), err
	}
	return b.registration(s), nil
}

// TopDirs returns the directories that hold the checked-out files of a tree.
func (b Overlay) TopDirs(s Spec) ([]string, error) {
	tree, err := OpenOverlay(s.OverlayDir, b.Layers)
	if err != nil {
		return nil, err
	}
	return tree.Lowers, nil
}

// OpenOverlay returns the directories of a tree, given its Spec.OverlayDir and the directory of the layers; nil if the tree is no
// overlay.
func OpenOverlay(dir, layers string) (*overlay.Tree, error) {
	name, err := UsedLayer(dir)
	if err != nil || name == "" {
		return nil, err
	}
	base, err := layer.Open(layers, name)
	if err != nil {
		return nil, err
	}
	return &overlay.Tree{Upper: OverlayUpperDir(dir), Lowers: base.Lowers, Index: base.Index, TreeID: base.Tree}, nil
}

// UsedLayer returns the name of the layer that a tree uses, given its Spec.OverlayDir; empty if the tree is no overlay.
func UsedLayer(dir string) (string, error) {
	name, err := durable.ReadFile(filepath.Join(dir, layerName), 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(bytes.TrimSpace(name)), err
}

// UseLayer records the layer that a tree uses, given its Spec.OverlayDir. No command may run in the tree, unless the files of the
// layer are the same as those of the one before.
func UseLayer(dir, name string) error {
	return durable.WriteFile(filepath.Join(dir, layerName), []byte(name+"\n"), 0o644)
}

// OverlayUpperDir returns the upper directory of the overlay of a tree, given its Spec.OverlayDir.
func OverlayUpperDir(dir string) string { return filepath.Join(dir, upperName) }

// OverlayWorkDir returns the work directory of the overlay of a tree.
func OverlayWorkDir(t *overlay.Tree) string { return filepath.Join(filepath.Dir(t.Upper), workName) }

// linkOrCopy makes a hard link to a file, or a copy of it where no link is possible. No process may write the file in place.
func linkOrCopy(from, to string) error {
	if err := os.Link(from, to); err == nil {
		return nil
	}
	return git.CopyFileWithMtime(from, to)
}
