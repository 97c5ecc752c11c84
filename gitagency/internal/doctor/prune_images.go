package doctor

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/images"
)

const kindImage = "image"

// usedImages returns the ids of the unpacked images that sandboxes use, of all repositories. One that a broken record names is unpacked
// again when the record is repaired.
func usedImages(r *core.Repository) (map[string]bool, error) {
	repos, err := r.Store.Repos()
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, repo := range repos {
		entries, err := r.Store.Invocations(repo.RepoID, nil)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !e.Record.HasEnded() {
				used[e.Record.Primitives.SoftwareImage] = true
			}
		}
	}
	return used, nil
}

// planImages plans for the unpacked images that sandboxes share. One is removed when no sandbox needs it any more and it was last used
// before the cutoff.
func (p *prunePlan) planImages() error {
	dir := p.r.Store.SoftwareDir()
	all, err := images.Dir(dir).List()
	if err != nil || len(all) == 0 {
		return err
	}
	used, err := usedImages(p.r)
	if err != nil {
		return err
	}
	for _, image := range all {
		t := PruneResult{Kind: kindImage, ID: image.ID, Action: PruneKeep, Path: filepath.Join(dir, image.ID)}
		switch {
		case used[image.ID]:
			t.Reason = "a sandbox uses it"
		case !p.isExpired(&image.LastUsed) && p.before.IsZero():
			t.Reason = "nothing expires"
		case !p.isExpired(&image.LastUsed):
			t.Reason = "it was last used " + formatTime(image.LastUsed) + ", which is not long enough ago"
		default:
			t.Action, t.Reason = PruneRemove, "no sandbox uses it, and it was last used "+formatTime(image.LastUsed)
		}
		p.results = append(p.results, t)
	}
	return nil
}

// pruneImages removes the images that the plan removes, unless a process has begun to use one since.
func pruneImages(ctx context.Context, r *core.Repository, results []PruneResult) error {
	var ids, removed []string
	for _, t := range results {
		if t.Kind == kindImage && t.Action == PruneRemove {
			ids = append(ids, t.ID)
		}
	}
	if !durable.IsDir(r.Store.SoftwareDir()) {
		return nil
	}
	err := r.RunSteps(ctx, "prune", []core.Step{{Name: "images", Do: func() (err error) {
		removed, err = images.Dir(r.Store.SoftwareDir()).Prune(ctx, ids, func() (map[string]bool, error) { return usedImages(r) }, func() error { return removeContainers(ctx, r) })
		return err
	}}})
	keepUnremoved(results, kindImage, removed, err)
	return err
}

// removeContainers removes the containers that killed processes have left in the container engine.
func removeContainers(ctx context.Context, r *core.Repository) error {
	name, err := r.Settings.ContainerEngine()
	if err != nil {
		return err
	}
	engine, err := images.FindEngine(r.Opts.Env, name)
	var none *images.NoEngineError
	if errors.As(err, &none) {
		return nil
	}
	return engine.RemoveContainers(ctx, r.Store.SoftwareDir())
}
