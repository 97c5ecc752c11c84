package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/doctor"
)

// HideRefsRequest says how to change the setting that hides the refs of git-agency.
type HideRefsRequest struct {
	Undo   bool // remove it
	DryRun bool // change nothing
}

// HideRefsResult is a setting in the repository's own configuration.
type HideRefsResult struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Undo    bool   `json:"undo"`
	DryRun  bool   `json:"dry_run"`
	Changed bool   `json:"changed"` // it was added or removed, or would be
}

// HideRefs keeps snapshots and trash out of the decorations of git log: it adds refs/agency/* to log.excludeDecoration in
// the repository's own configuration, once, or removes exactly that.
func (r *Repository) HideRefs(ctx context.Context, req HideRefsRequest) (HideRefsResult, error) {
	changed, err := doctor.HideRefs(ctx, r.core, req.Undo, req.DryRun)
	return HideRefsResult{Key: doctor.HideRefsKey, Value: doctor.HideRefsValue, Undo: req.Undo, DryRun: req.DryRun, Changed: changed}, publicError(err)
}
