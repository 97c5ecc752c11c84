package landing

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/clone"
	"github.com/git-agency/git-agency/gitagency/internal/git/transport"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// PushPlan says which integration branch to push where.
type PushPlan struct {
	Worktree     string // id of the integration worktree
	Branch       string
	Remote       string // name of the remote
	RemoteBranch string // name of the branch on the remote
	Address      string // remote as git finds it from any worktree: its name or a path
	Unlanding    bool   // the push follows an unland

	verify          Request // options of the verification of these merges
	branchRef       string  // full ref of Branch
	remote          transport.Remote
	untrustedRemote bool
}

// PushRequest says which branches to push where, and how to verify merges of commits that others have pushed.
type PushRequest struct {
	Invocations []string // ids of invocations, whose integration branches are pushed
	Worktree    string   // id of an integration worktree: the branches of its submitted invocations, or its own if none is; may be empty
	Remote      string   // name of the remote; default: the source of the clones, else "local" if it exists, else "origin"
	Unlanding   bool     // the push follows an unland, for messages

	// As in Request.
	Verify   string
	NoVerify bool
	Output   io.Writer
	Force    <-chan struct{}
}

// PlanPush determines where the branches of integration worktrees would be pushed, and refuses branches that cannot be. It
// reads only local configuration and never contacts the remote. Call it before anything lands, so that its errors leave
// everything unchanged: it also checks the settings that Push will use.
func PlanPush(ctx context.Context, r *core.Repository, req PushRequest) ([]PushPlan, error) {
	verify := Request{Verify: req.Verify, NoVerify: req.NoVerify, Output: req.Output, Force: req.Force}
	if err := verify.normalizeVerify(r); err != nil {
		return nil, err
	}
	if err := checkPushSettings(r, req); err != nil {
		return nil, err
	}
	remotes, err := transport.ReadRemotes(ctx, r.Git)
	if err != nil {
		return nil, err
	}
	remote, err := req.remote(r)
	if err != nil {
		return nil, err
	}
	names := remotes.Names()
	for _, name := range []string{"local", "origin"} {
		if remote == "" && slices.Contains(names, name) {
			remote = name
		}
	}
	if !slices.Contains(names, remote) {
		return nil, &fault.NoRemoteError{Remote: remote, Remotes: names}
	}
	if err := remotes.CheckFullHistory(); err != nil {
		return nil, fmt.Errorf("push to %s: %w; nothing changed", remote, err)
	}
	to, err := remotes.Find(ctx, remote)
	if err != nil {
		return nil, fmt.Errorf("%w; nothing changed", err)
	}
	wary := to.Untrusted && !r.AllSandboxesWalled()
	if wary && to.Path != "" {
		hooks, err := transport.RemoteHooks(ctx, r.Git, to)
		if err != nil {
			return nil, fmt.Errorf("push to %s: %w", remote, err)
		}
		if len(hooks) > 0 {
			return nil, &fault.UntrustedRemoteError{Remote: remote, URL: to.URL, Hooks: hooks}
		}
	}
	targets, err := pushTargets(ctx, r, req)
	if err != nil {
		return nil, err
	}
	plans := []PushPlan{}
	for _, target := range targets {
		as := target.Branch
		if upstream, pushed := remotes.Upstream(target.Branch, remote); upstream != "" && upstream != as {
			if !pushed {
				return nil, &fault.UpstreamError{Branch: core.ShortBranch(as), Remote: remote, Upstream: core.ShortBranch(upstream)}
			}
			as = upstream
		}
		plans = append(plans, PushPlan{
			Worktree: target.Worktree.ID, Branch: core.ShortBranch(target.Branch), Remote: remote, RemoteBranch: core.ShortBranch(as), Address: remote,
			Unlanding: req.Unlanding, verify: verify, branchRef: target.Branch, remote: to, untrustedRemote: wary,
		})
		if to.Relative {
			plans[len(plans)-1].Address = to.Path
		}
	}
	return plans, nil
}

// remote returns the remote that was asked for or, if all invocations are clones of the same remote, that one; else empty.
func (req PushRequest) remote(r *core.Repository) (string, error) {
	if req.Remote != "" {
		return req.Remote, nil
	}
	sources := map[string]bool{}
	for _, id := range req.Invocations {
		inv, err := r.Invocation(id)
		if err != nil {
			return "", err
		}
		sources[inv.CloneSource] = true
	}
	for source := range sources {
		if len(sources) == 1 && source != clone.ThisRepository {
			return source, nil
		}
	}
	return "", nil
}

// pushTargets returns the branches that a request names, each once.
func pushTargets(ctx context.Context, r *core.Repository, req PushRequest) ([]core.IntegrationTarget, error) {
	targets := []core.IntegrationTarget{}
	add := func(inv core.Invocation) error {
		t, err := r.FindIntegrationTarget(ctx, r.Git, inv)
		if err == nil && !slices.ContainsFunc(targets, func(other core.IntegrationTarget) bool { return other.Branch == t.Branch }) {
			targets = append(targets, t)
		}
		return err
	}
	var invocations []core.Invocation
	if req.Worktree != "" {
		submitted, err := InReview(r, req.Worktree)
		if err != nil {
			return nil, err
		}
		invocations = submitted
	}
	for _, id := range req.Invocations {
		inv, err := r.Invocation(id)
		if err != nil {
			return nil, err
		}
		if inv.Landing == store.Landed && inv.LandedBranch != "" {
			inv.IntegrationBranch = core.HeadsPrefix + inv.LandedBranch
		}
		invocations = append(invocations, inv)
	}
	for _, inv := range invocations {
		if err := add(inv); err != nil {
			return nil, err
		}
	}
	if req.Worktree == "" || len(targets) > 0 {
		return targets, nil
	}
	branch, err := r.WorktreeBranch(ctx, req.Worktree)
	if err != nil {
		return nil, err
	}
	return targets, add(core.Invocation{WorktreeID: req.Worktree, IntegrationBranch: branch})
}

// checkPushSettings refuses invalid settings that a push would trip over later.
func checkPushSettings(r *core.Repository, req PushRequest) error {
	if req.Unlanding { // a landing checks its own strategy
		if _, err := r.Settings.Strategy(); err != nil {
			return err
		}
		if _, err := r.Settings.LandingTrailers(); err != nil {
			return err
		}
	}
	if _, err := r.Settings.PushTimeout(); err != nil {
		return err
	}
	if _, err := r.Settings.OperationTimeout(); err != nil {
		return err
	}
	_, err := r.Settings.SignsLandings()
	return err
}
