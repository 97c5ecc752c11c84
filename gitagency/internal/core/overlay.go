package core

import (
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// OverlayBackend returns the backend that creates trees that are overlays.
func (r *Repository) OverlayBackend(repo *git.Repo) changeset.Overlay {
	return changeset.Overlay{Worktree: WorktreeBackend(repo), Layers: r.Store.LayersDir(), UsedLayers: r.UsedLayers}
}

// UsedLayers returns the names of the layers that the sandboxes of all repositories use.
func (r *Repository) UsedLayers() (map[string]bool, error) {
	repos, err := r.Store.Repos()
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, repo := range repos {
		sandboxes, err := r.Store.ListIDs(repo.RepoID, "sandboxes")
		if err != nil {
			return nil, err
		}
		for _, id := range sandboxes {
			name, err := changeset.UsedLayer(r.Store.OverlayDir(repo.RepoID, id))
			if err != nil {
				return nil, err
			}
			used[name] = true
		}
	}
	return used, nil
}

// RestoreOverlayDir makes the directory on which the overlay of an invocation is mounted again, with its marker, if it is missing:
// the files of the sandbox are elsewhere. It reports whether the tree is an overlay.
func (r *Repository) RestoreOverlayDir(id string) (isOverlay bool, err error) {
	tree := r.Store.SandboxTreePath(r.ID, id)
	if name, err := changeset.UsedLayer(r.Store.OverlayDir(r.ID, id)); err != nil || name == "" {
		return false, err
	}
	if _, there := store.FirstExisting(tree, store.WithdrawnPath(tree), store.RemovablePath(tree)); there {
		return true, nil
	}
	if err := durable.Mkdir(tree, 0o755); err != nil {
		return true, err
	}
	return true, guard.Sandbox.Restore(tree)
}

// OverlayTree returns the directories of which the tree of an invocation consists if it is an overlay; else nil.
func (r *Repository) OverlayTree(id string) (*overlay.Tree, error) {
	tree, err := changeset.OpenOverlay(r.Store.OverlayDir(r.ID, id), r.Store.LayersDir())
	if err != nil {
		return nil, fmt.Errorf("the layer below the overlay of %s cannot be read: %w; 'git agency doctor --fix %s' makes it again", id, err, id)
	}
	return tree, nil
}

// WrittenDir returns the directory that has the changed files of the tree of an invocation: the upper directory of an overlay,
// else the tree.
func (r *Repository) WrittenDir(id string) (string, error) {
	layers, err := r.OverlayTree(id)
	if err != nil || layers == nil {
		return r.Store.SandboxTreePath(r.ID, id), err
	}
	return layers.Upper, nil
}
