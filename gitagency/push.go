package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/landing"
)

// PushPlan says which integration branch to push where.
type PushPlan = landing.PushPlan

// PlanPush determines where the branches of integration worktrees would be pushed, and refuses branches that cannot be. It
// reads only local configuration and never contacts the remote. An empty remote means "local" if it exists, else
// "origin". Call it before anything lands, so that its errors leave everything unchanged.
//
// It also checks the settings that Push will use; req says how Push verifies its merges.
func (r *Repository) PlanPush(ctx context.Context, remote string, req LandRequest, worktrees ...string) ([]PushPlan, error) {
	return landing.PlanPush(ctx, r.core, remote, req, worktrees...)
}

// PushResult is the result of Push.
type PushResult = landing.PushResult

// Push pushes the current state of an integration branch to a remote. If others have pushed there, it merges their commits
// into the branch in a transaction, as a landing does, and tries again, up to maxPushes times and agency.pushTimeout. It
// never forces. ids are the invocations that landed on the branch; their event logs record the push. req only says how
// merges are verified.
//
// Errors are *NotPushedError: landings and merges that were made before stay.
func (r *Repository) Push(ctx context.Context, plan PushPlan, req LandRequest, ids ...string) (pushed PushResult, err error) {
	return landing.Push(ctx, r.core, plan, req, ids...)
}
