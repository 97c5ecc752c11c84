package gitagency

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/outlet"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Implemented values of the isolation primitive.
const (
	isolationNone = "none"
	isolationOS   = "os"
)

// outputsOpen is unrestricted network access.
const outputsOpen = "open"

// hostsPrefix starts a value of the outputs primitive that lists the allowed hosts.
const hostsPrefix = "hosts:"

// walls describes the walls of one sandbox, as planned for one command.
type walls struct {
	plan      confine.Plan
	applied   confine.Plan // plan of the walls that exist, which another command may have built
	policy    policy
	rules     outlet.Rules // allowed hosts; only with confine.ProxiedOnly
	proxyAddr string       // address of the proxy; only with confine.ProxiedOnly
}

// needsWalls reports whether the commands of a sandbox run behind any walls.
func needsWalls(prims Primitives) bool {
	return prims.Isolation == isolationOS || prims.Outputs != outputsOpen
}

// planPrimitives plans the walls around a command.
func (s *Sandbox) planWalls(prims Primitives) (walls, error) {
	w := walls{}
	var err error
	if hosts, some := strings.CutPrefix(prims.Outputs, hostsPrefix); some {
		if w.rules, err = outlet.ParseRules(hosts); err != nil {
			return w, err
		}
	}
	if prims.Isolation == isolationNone {
		w.plan, err = confine.MakeNetworkPlan(prims.Outputs)
		return w, err
	}
	if w.policy, err = s.repo.wallsPolicy(); err != nil {
		return w, err
	}
	integration, err := s.repo.integrationTrees(w.policy)
	if err != nil {
		return w, err
	}
	req := confine.Request{
		Tree: s.tree, GitDir: s.repo.CommonDir, GitFile: filepath.Join(s.tree, ".git"),
		OverlayDir: s.repo.store.WallsDir(s.repo.ID, s.ID), DataDir: s.repo.DataDir,
		MarkerDir:        filepath.Join(s.tree, guard.AgencyDir),
		IntegrationTrees: integration, KeepVisible: s.repo.git.Alternates(), Outputs: prims.Outputs,
	}
	w.policy.fillRequest(&req)
	if w.plan, err = confine.MakePlan(req, confine.InspectMachine()); err != nil {
		return w, err
	}
	w.plan.Volatile = true // the import saves the upper directory after each command, so it need not be synced
	w.plan.Writable = append(w.plan.Writable, s.cachesDir())
	return w, nil
}

// cachesDir returns the sandbox's own directory for tool caches that do not exist on the host. It is kept between
// commands.
func (s *Sandbox) cachesDir() string {
	return filepath.Join(s.repo.store.WallsDir(s.repo.ID, s.ID), "caches")
}

// checkWalls refuses, before anything is created, walls that this machine cannot build. It builds and removes a set
// of walls to find out.
func (r *Repository) checkWalls(ctx context.Context, prims Primitives) error {
	if !needsWalls(prims) {
		return nil
	}
	if hosts, some := strings.CutPrefix(prims.Outputs, hostsPrefix); some {
		if _, err := outlet.ParseRules(hosts); err != nil {
			return &InvalidError{What: "outputs", Value: prims.Outputs, Want: "hosts that can be meant: " + err.Error()}
		}
	}
	bare := prims.Isolation == isolationNone
	_, err := r.placeholderSandbox().planWalls(prims)
	if err = r.attributeToSetting(err); is[*InvalidError](err) {
		return err
	}
	if err == nil {
		err = confine.TryBuild(ctx, prims.Outputs, bare)
	}
	switch {
	case err == nil || context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case bare:
		return &UnsupportedError{Primitive: "outputs", Value: prims.Outputs, Why: r.explainWallError(ctx, err)}
	}
	why := r.explainWallError(ctx, err)
	if prims.Outputs == outputsOpen && !strings.Contains(why, hintNoIsolation) {
		why += "; " + hintNoIsolation
	}
	return &UnsupportedError{Primitive: "isolation", Value: prims.Isolation, Why: why}
}

// placeholderSandbox returns a sandbox that does not exist, for planning. No invocation id has this form.
func (r *Repository) placeholderSandbox() *Sandbox {
	return &Sandbox{ID: "unborn", repo: r, tree: r.store.SandboxTreePath(r.ID, "unborn")}
}

// attributeToSetting names the setting, and its location, for which the walls were refused.
func (r *Repository) attributeToSetting(err error) error {
	var refused *confine.RefusedError
	if !errors.As(err, &refused) || refused.Key == "" {
		return err
	}
	for _, setting := range multiValues(r.git.Config, refused.Key) {
		named := expandHome(strings.TrimPrefix(setting.Value, privatePrefix), proc.Getenv(r.opts.Env, "HOME"))
		if path := strings.TrimPrefix(refused.Path, privatePrefix); named == path || resolveOrEmpty(named) == path {
			want := "something else: " + refused.Why
			if refused.Remedy != "" {
				want += "; " + refused.Remedy
			}
			return invalidSetting(refused.Key, setting, want)
		}
	}
	return err
}

// hintNoIsolation is a remedy that always works, unless the network is to be restricted.
const hintNoIsolation = "--isolation none does without"

// explainWallError returns the reason why walls cannot be built: the first missing kernel feature, if any.
func (r *Repository) explainWallError(ctx context.Context, err error) string {
	var refused *confine.RefusedError
	if errors.As(err, &refused) {
		return refused.Error()
	}
	features, probeErr := confine.Probe(ctx, r.opts.Env)
	for _, f := range features {
		if f.State == confine.Missing && f.Name != confine.CgroupDelegation { // cgroups are for limits, not for walls
			return f.Name + ": " + f.Detail
		}
	}
	return errors.Join(err, probeErr).Error()
}

// walledEnvironment returns the environment of a command behind walls, with the variables of the caller that may
// pass.
func (s *Sandbox) walledEnvironment(w walls, extra []string, worktree, dir string) []string {
	e := walledEnvironment{callerEnv: s.repo.opts.Env, extraEnv: extra, policy: w.policy, plan: w.applied, cacheDir: s.cachesDir()}
	if w.plan.Network == confine.ProxiedOnly {
		e.proxyEnv = outlet.Environment(w.proxyAddr, w.rules)
	}
	if w.plan.NetworkOnly {
		return s.execEnvironment(append(e.proxyEnv, extra...), worktree, dir)
	}
	return dedupeEnv(slices.Concat([]string{"PWD=" + dir}, refLockWaitEnv, e.variables(), s.identityVariables(worktree), []string{isolationVariable + "=" + isolationOS}))
}

// refLockWaitEnv makes git wait for ref locks: one that git on the host takes while it imports the work of another
// command stays visible in the sandbox until scriptRemoveRefLock runs.
var refLockWaitEnv = []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.filesRefLockTimeout", "GIT_CONFIG_VALUE_0=10000"}

// helperEnvironment returns the environment of our own scripts behind the walls.
func (s *Sandbox) helperEnvironment(w walls) []string {
	var env []string
	for _, kv := range (walledEnvironment{callerEnv: s.repo.opts.Env, policy: policy{caches: w.policy.caches}, plan: w.applied, cacheDir: s.cachesDir()}).variables() {
		if name, _, _ := strings.Cut(kv, "="); slices.Contains([]string{"PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR"}, name) || strings.HasPrefix(name, "GIT_CONFIG_") {
			env = append(env, kv)
		}
	}
	return append(env, invocationVariable+"="+s.ID, "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1")
}
