package creation

import (
	"cmp"
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
)

// CheckBase returns the error with which Start would refuse the worktree or the commit that a request starts from, or the changeset for
// that commit. It takes
// no lock and changes nothing, so Start may still fail. commit has the files that the sandbox would start with.
func CheckBase(ctx context.Context, r *core.Repository, req Request) (commit string, err error) {
	if err := req.check(); err != nil {
		return "", err
	}
	plan := Plan{Request: req}
	if plan.origin, err = requestedOrigin(ctx, r, req); err != nil {
		return "", err
	}
	if err := planWorktree(r, &plan); err != nil {
		return "", err
	}
	listing, err := listWorktrees(ctx, r, r.Git, false)
	if err != nil {
		return "", err
	}
	wt, err := r.WorktreeByID(plan.worktreeID)
	if err != nil {
		return "", err
	}
	if plan.origin.Base == "" {
		start, err := r.FindSandboxStart(wt, listing)
		if err != nil {
			return "", err
		}
		plan.origin.Base = start.Rev
	}
	placeholder := sandbox.Placeholder(r)
	point, _, err := resolveStartPoint(ctx, r, r.Git, plan.origin, core.SandboxRef(placeholder.ID))
	if err != nil {
		return "", explainMissingBranch(ctx, r, r.Git, wt, plan.origin, err)
	}
	if prims, err := r.Settings.ChoosePrimitives(req.Primitives, req.Profile); err == nil { // the check of the walls reports an error
		plan.prims = prims
		if _, err := chooseChangeset(ctx, r, r.Git, &plan, point); err != nil {
			return "", err
		}
	}
	return cmp.Or(point.Snapshot, point.Base), r.CheckPlacement(placeholder.Tree, listing)
}
