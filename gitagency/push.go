package gitagency

import (
	"context"
	"io"

	"github.com/git-agency/git-agency/gitagency/internal/landing"
)

// PushRequest says which branches to push where, and how to verify merges of commits that others have pushed.
type PushRequest struct {
	Invocations []string // ids of invocations, whose integration branches are pushed
	Worktree    string   // id of an integration worktree: the branches of its submitted invocations, or its own if none is; may be empty
	Remote      string   // name of the remote; default: "local" if it exists, else "origin"
	Unlanding   bool     // the push follows an Unland, for messages

	// As in LandRequest.
	Verify   string
	NoVerify bool
	Output   io.Writer
	Force    <-chan struct{}
}

// PushPlan says which integration branch to push where. Only PlanPush makes one.
type PushPlan struct {
	Worktree     string // id of the integration worktree
	Branch       string
	Remote       string // name of the remote
	RemoteBranch string // name of the branch on the remote
	Address      string // remote as git finds it from any worktree: its name or a path

	plan landing.PushPlan
}

func newPushPlan(p landing.PushPlan) PushPlan {
	return PushPlan{Worktree: p.Worktree, Branch: p.Branch, Remote: p.Remote, RemoteBranch: p.RemoteBranch, Address: p.Address, plan: p}
}

// PlanPush determines where the branches of integration worktrees would be pushed, and refuses branches that cannot be. It
// reads only local configuration and never contacts the remote. Call it before anything lands, so that its errors leave
// everything unchanged: it also checks the settings that Push will use.
func (r *Repository) PlanPush(ctx context.Context, req PushRequest) ([]PushPlan, error) {
	if r.IsPaths() {
		return nil, publicError(notForPaths("--push"))
	}
	plans, err := landing.PlanPush(ctx, r.core, landing.PushRequest(req))
	return convertAll(plans, newPushPlan), publicError(err)
}

// PushResult is the result of Push.
type PushResult struct {
	Commit   string // commit of the integration branch
	Tries    int
	Merged   bool // commits of others were merged into the branch, even if the push failed later
	UpToDate bool // the remote had all of the commits before
}

// Push pushes the current state of an integration branch to a remote. If others have pushed there, it merges their commits
// into the branch in a transaction, as a landing does, and tries again a few times, within agency.pushTimeout. It
// never forces. ids are the invocations that landed on the branch; their event logs record the push.
//
// Errors are *NotPushedError: landings and merges that were made before stay.
func (r *Repository) Push(ctx context.Context, plan PushPlan, ids ...string) (PushResult, error) {
	pushed, err := landing.Push(ctx, r.core, plan.plan, ids...)
	return PushResult(pushed), publicError(err)
}
