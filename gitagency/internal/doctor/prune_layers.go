package doctor

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git/layer"
)

// planLayers plans for the layers that sandboxes of the changeset overlay share. A layer is removed when no sandbox needs it any
// more, of any repository, and it was last used before the cutoff.
func (p *prunePlan) planLayers() error {
	all, err := layer.List(p.r.Store.LayersDir())
	if err != nil || len(all) == 0 {
		return err
	}
	used, err := p.r.UsedLayers()
	if err != nil {
		return err
	}
	stays := func(l layer.Info) string {
		switch {
		case used[l.Name]:
			return "a sandbox uses it"
		case !p.isExpired(&l.LastUsed) && p.before.IsZero():
			return "nothing expires"
		case !p.isExpired(&l.LastUsed):
			return "it was last used " + formatTime(l.LastUsed) + ", which is not long enough ago"
		}
		return ""
	}
	bases := map[string]bool{} // of layers that stay
	for changed := true; changed; {
		changed = false
		for _, l := range all {
			if l.Base != "" && !bases[l.Base] && (stays(l) != "" || bases[l.Name]) {
				bases[l.Base], changed = true, true
			}
		}
	}
	for _, l := range all {
		t := PruneResult{Kind: kindLayer, ID: l.Name, Action: PruneKeep, Reason: stays(l), Path: filepath.Join(p.r.Store.LayersDir(), l.Name)}
		switch {
		case t.Reason != "":
		case bases[l.Name]:
			t.Reason = "another layer is based on it"
		default:
			t.Action, t.Reason = PruneRemove, "no sandbox uses it, and it was last used "+formatTime(l.LastUsed)
		}
		p.results = append(p.results, t)
	}
	return nil
}

const kindLayer = "layer"

// pruneLayers removes the layers that the plan removes, unless a process has begun to use one since.
func pruneLayers(ctx context.Context, r *core.Repository, expiry pruneCutoff, results []PruneResult) error {
	if !slices.ContainsFunc(results, func(t PruneResult) bool { return t.Kind == kindLayer && t.Action == PruneRemove }) {
		return nil
	}
	var removed []string
	err := r.RunSteps(ctx, "prune", []core.Step{{Name: "layers", Do: func() (err error) {
		removed, err = layer.Prune(ctx, layer.PruneRequest{Dir: r.Store.LayersDir(), Before: expiry.before, Used: r.UsedLayers})
		return err
	}}})
	keepUnremoved(results, kindLayer, removed, err)
	return err
}

// keepUnremoved says of the items of a kind that were to be removed, and were not, why they stay.
func keepUnremoved(results []PruneResult, kind string, removed []string, err error) {
	for i, t := range results {
		if t.Kind != kind || t.Action != PruneRemove || slices.Contains(removed, t.ID) {
			continue
		}
		results[i].Action, results[i].Reason = PruneKeep, "a process uses it"
		if err != nil {
			results[i].Reason = err.Error()
		}
	}
}
