package doctor

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/git/layer"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// checkLayer finds an overlay whose layer is missing or damaged: without it, nothing can be found out about its files.
func (x *checkRun) checkLayer(s treeInfo) {
	dir := x.Store.LayersDir()
	_, err := changeset.OpenOverlay(store.OverlayOf(s.tree), dir)
	if err == nil {
		return
	}
	x.addFinding(Finding{
		Code: "missing-layer", ID: s.id, Path: dir, AtRisk: true, Problem: "the layer below its overlay cannot be read: " + err.Error(),
		Outcome: "the layer is made again from the commits of the repository",
	}, func(ctx context.Context) error {
		overlay := store.OverlayOf(s.tree)
		name, err := changeset.UsedLayer(overlay)
		if err != nil {
			return err
		}
		made, err := layer.Remake(ctx, x.repo, dir, name)
		if err != nil || made == name {
			return err
		}
		x.Warn("files of %s that were not changed are now those of a checkout with the present settings, because settings or the umask have changed since", s.id)
		return changeset.UseLayer(overlay, made)
	})
}

// reportMissingMountPoint reports an overlay whose directory outside of the walls is missing. Its files are elsewhere.
func (x *checkRun) reportMissingMountPoint(s treeInfo) {
	x.addFinding(Finding{
		Code: "missing-tree", ID: s.id, Path: s.tree, Problem: "the directory on which its overlay is mounted is missing; its files are in " + store.OverlayOf(s.tree),
		Outcome: "the directory is made again",
	}, func(context.Context) error {
		_, err := x.RestoreOverlayDir(s.id)
		return err
	})
}
