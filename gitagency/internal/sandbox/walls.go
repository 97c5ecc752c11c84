package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/copies"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/handoff"
	"github.com/git-agency/git-agency/gitagency/internal/outlet"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Walls describes the walls of one sandbox, as planned for one command.
type Walls struct {
	plan        walls.Plan
	applied     walls.Plan // plan of the walls that exist, which another command may have built
	policy      settings.Policy
	gitConfig   []copies.File // configuration files in the git directory, without secrets
	homeFiles   []copies.File // files to copy into the private home
	leftOut     []string      // settings of tools that cannot be parsed, so that the private home has no copy
	softwareEnv []string      // variables of the image whose root file system commands have
	rules       outlet.Rules  // allowed hosts; only with walls.ProxiedOnly
	proxyAddr   string        // address of the proxy; only with walls.ProxiedOnly
}

// NeedsWalls reports whether the commands of a sandbox run behind any walls.
func NeedsWalls(prims store.Primitives) bool {
	return prims.Isolation == settings.IsolationOS || prims.Outputs != settings.OutputsOpen
}

// WallsRequest is what the record of a sandbox says about its walls.
type WallsRequest struct {
	store.Primitives
	Runner  string // agent that the sandbox is for; may be empty
	Allowed store.Grants
	Named   []walls.NamedPath // paths of Allowed as the user named them, if they are to be checked
	Trial   bool              // no command runs behind the walls, so that secrets in the many files of other worktrees are not searched
}

// PlanWalls plans the walls around a command in the sandbox.
func (s *Sandbox) PlanWalls(asked WallsRequest) (Walls, error) {
	return s.planWalls(asked, walls.MakePlan)
}

// planWalls plans the walls with makePlan, which is called unless only the network is restricted.
func (s *Sandbox) planWalls(asked WallsRequest, makePlan func(walls.Request, walls.Machine) (walls.Plan, error)) (w Walls, err error) {
	if hosts, some := strings.CutPrefix(asked.Outputs, settings.HostsPrefix); some {
		if w.rules, err = outlet.ParseRules(hosts); err != nil {
			return w, err
		}
	}
	defer func() { w.plan.Relayed = w.relayed() }()
	if asked.Isolation == settings.IsolationNone {
		w.plan, err = walls.MakeNetworkPlan(asked.Outputs)
		return w, err
	}
	if w.policy, err = s.Repo.Settings.WallsPolicy(asked.Allowed); err != nil {
		return w, err
	}
	w.policy.Named = append(w.policy.Named, asked.Named...)
	integration, err := s.Repo.IntegrationTrees(w.policy)
	if err != nil {
		return w, err
	}
	req := walls.Request{
		Tree: s.Tree, GitDir: s.Repo.CommonDir, GitFile: filepath.Join(s.Tree, ".git"),
		OverlayDir: s.Repo.Store.WallsDir(s.Repo.ID, s.ID), DataDir: s.Repo.DataDir,
		MarkerFile: guard.Sandbox.Path(s.Tree), Mailbox: s.Repo.Store.MailboxDir(s.Repo.ID, s.ID), RecordFiles: s.recordFiles(),
		IntegrationTrees: integration, KeepVisible: handoff.ObjectsOutside(s.Repo), Outputs: asked.Outputs,
	}
	if s.Repo.IsClone(s.ID) {
		req.OwnGitDir = s.Repo.InnerCloneDir(s.ID)
	}
	layers, err := s.Repo.OverlayTree(s.ID)
	if err != nil {
		return w, err
	}
	if layers != nil {
		req.TreeLayers = walls.Layers{Upper: layers.Upper, Work: changeset.OverlayWorkDir(layers), Lowers: layers.Lowers}
	}
	w.policy.ForRunner(asked.Runner)
	if w.softwareEnv, err = s.fillSoftware(&req, &w.policy, asked.Primitives); err != nil {
		return w, err
	}
	gitConfig := s.Repo.Settings.FindGitConfigSecrets(s.Repo.CommonDir, !asked.Trial)
	w.gitConfig = s.filterGitConfig(&w.policy, gitConfig)
	w.policy.FillRequest(&req)
	req.GitConfig = gitConfig.Paths
	if req.PrivateHome && req.Software == "" {
		req.Tools = append(req.Tools, gitConfig.NamedDirs...)
	}
	machine := confine.InspectMachine()
	if w.plan, err = makePlan(req, machine); err != nil {
		return w, err
	}
	if w.plan.Home.Path != "" {
		w.homeFiles, w.leftOut = w.policy.HomeFiles(gitConfig, func(path string) string { return walls.FixedTarget(req, machine.Files, path) })
	}
	w.plan.Volatile = true // the import saves the upper directory after each command, so it need not be synced
	w.plan.Writable = append(w.plan.Writable, s.cachesDir(), s.AgentStateDir())
	return w, nil
}

// warnSkipped warns about grants that are ignored and settings of tools that are left out.
func (w Walls) warnSkipped(r *core.Repository) {
	for _, skipped := range w.policy.Skipped {
		r.Warn("ignoring %v", skipped)
	}
	for _, path := range w.leftOut {
		r.Warn("%s cannot be parsed, so it is missing behind the walls: it may contain secrets; to show it as it is: git config --global --add %s %s",
			path, settings.ReadKey, quote.Shell(path))
	}
}

// filterGitConfig adds the secrets in the configuration of git to a policy, and returns the files in the git directory that
// contain some.
func (s *Sandbox) filterGitConfig(policy *settings.Policy, secrets settings.GitConfigSecrets) (inGitDir []copies.File) {
	policy.Secrets = append(policy.Secrets, secrets.SecretFiles...)
	for _, f := range secrets.Files {
		if slices.Contains(policy.Read, f.Path) {
			continue // the user grants it as it is
		}
		if f.Unparsable {
			s.Repo.Warn("%s is too large or cannot be parsed, so it is empty behind the walls: it may contain secrets", f.Path)
		}
		policy.Filtered = append(policy.Filtered, walls.FilteredFile{Path: f.Path, Text: []byte(f.Text)})
		if name, err := filepath.Rel(s.Repo.CommonDir, f.Path); err == nil && filepath.IsLocal(name) {
			inGitDir = append(inGitDir, copies.File{Name: name, Original: f.Original, Text: f.Text})
		}
	}
	return inGitDir
}

// cachesDir returns the sandbox's own directory for tool caches that do not exist on the host. It is kept between
// commands.
func (s *Sandbox) cachesDir() string {
	return filepath.Join(s.Repo.Store.WallsDir(s.Repo.ID, s.ID), "caches")
}

// CheckWalls refuses, before anything is created, walls that this machine cannot build. It builds and removes a set
// of walls to find out.
func CheckWalls(ctx context.Context, r *core.Repository, prims store.Primitives) error {
	if !NeedsWalls(prims) {
		return nil
	}
	if err := checkWallsPlan(ctx, r, prims); err != nil {
		return err
	}
	return tryWallsOnce(ctx, r, prims)
}

// BeginCheckWalls is CheckWalls in the background; finish waits for the result.
func BeginCheckWalls(ctx context.Context, r *core.Repository, prims store.Primitives) (finish func() error) {
	checked := proc.Async(func() (struct{}, error) { return struct{}{}, CheckWalls(ctx, r, prims) })
	return func() error { _, err := checked(); return err }
}

// checkWallsPlan refuses walls that cannot be planned.
func checkWallsPlan(ctx context.Context, r *core.Repository, prims store.Primitives) error {
	if err := CheckOutputs(prims.Outputs); err != nil {
		return err
	}
	planned, err := Placeholder(r).PlanWalls(WallsRequest{Primitives: prims, Trial: true})
	planned.warnSkipped(r)
	if err = AttributeToSetting(r, err); fault.Is[*fault.InvalidError](err) {
		return err
	}
	if err != nil {
		return explainUnsupported(ctx, r, prims, err)
	}
	return nil
}

// CheckOutputs refuses a malformed list of hosts.
func CheckOutputs(outputs string) error {
	hosts, some := strings.CutPrefix(outputs, settings.HostsPrefix)
	if !some {
		return nil
	}
	if _, err := outlet.ParseRules(hosts); err != nil {
		return &fault.InvalidError{What: "outputs", Value: outputs, Want: "valid hosts: " + err.Error()}
	}
	return nil
}

// TryWalls builds walls around nothing and removes them again. The error is a *fault.UnsupportedError if this machine
// cannot build them.
func TryWalls(ctx context.Context, r *core.Repository, prims store.Primitives) error {
	err := confine.TryBuild(ctx, prims.Outputs, prims.Isolation == settings.IsolationNone)
	return explainUnsupported(ctx, r, prims, err)
}

// explainUnsupported returns an *fault.UnsupportedError for walls that cannot be planned or built.
func explainUnsupported(ctx context.Context, r *core.Repository, prims store.Primitives, err error) error {
	if refused := explainSoftware(err); refused != nil {
		return refused
	}
	switch {
	case err == nil || context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case prims.Isolation == settings.IsolationNone:
		return &fault.UnsupportedError{Primitive: "outputs", Value: prims.Outputs, Why: explainWallError(ctx, r, err)}
	}
	why := explainWallError(ctx, r, err)
	if prims.Outputs == settings.OutputsOpen && !strings.Contains(why, hintNoIsolation) && !errors.Is(err, syscall.EMFILE) {
		why += "; " + hintNoIsolation
	}
	return &fault.UnsupportedError{Primitive: "isolation", Value: prims.Isolation, Why: why}
}

// Placeholder returns a sandbox that does not exist, for planning. No invocation id has this form.
func Placeholder(r *core.Repository) *Sandbox {
	return &Sandbox{ID: "unborn", Repo: r, Tree: r.Store.SandboxTreePath(r.ID, "unborn")}
}

// AttributeToSetting names the setting, and its location, for which the walls were refused.
func AttributeToSetting(r *core.Repository, err error) error {
	var refused *walls.RefusedError
	if !errors.As(err, &refused) || refused.Key == "" || refused.Wall == walls.OtherRoot {
		return err
	}
	for _, setting := range settings.MultiValues(r.Git.Config, refused.Key) {
		named := settings.ExpandHome(strings.TrimPrefix(setting.Value, settings.PrivatePrefix), proc.Getenv(r.Opts.Env, "HOME"))
		if path := strings.TrimPrefix(refused.Path, settings.PrivatePrefix); named == path || guard.ResolveOrEmpty(named) == path {
			want := "another value: " + refused.Why
			if refused.Remedy != "" {
				want += "; " + refused.Remedy
			}
			return settings.InvalidSetting(refused.Key, setting, want)
		}
	}
	allowed := *refused // it is in the record of the sandbox
	allowed.Flag = settings.AllowFlags[refused.Key]
	return &allowed
}

// hintNoIsolation is a remedy that always works, unless the network is to be restricted.
const hintNoIsolation = "--isolation none works without it"

// explainWallError returns the reason why walls cannot be built: the first missing kernel feature, if any.
func explainWallError(ctx context.Context, r *core.Repository, err error) string {
	var refused *walls.RefusedError
	if errors.As(err, &refused) {
		return refused.Error()
	}
	if errors.Is(err, syscall.EMFILE) {
		return fmt.Sprintf("the walls need more open files than the limit, %d; raise it, as with 'ulimit -n 1024'", proc.OpenFilesLimit())
	}
	features, probeErr := confine.Probe(ctx, r.Opts.Env)
	for _, f := range features {
		if f.State == confine.Missing && f.Name != confine.CgroupDelegation { // cgroups are for limits, not for walls
			return f.Name + ": " + f.Detail
		}
	}
	return errors.Join(err, probeErr).Error()
}

// walledEnvironment returns the environment of a command behind walls, with the variables of the caller that may
// pass.
func (s *Sandbox) walledEnvironment(w Walls, extra []string, worktree, dir string) []string {
	e := settings.WalledEnvironment{CallerEnv: s.Repo.Opts.Env, ExtraEnv: extra, Policy: w.policy, Plan: w.applied, SoftwareEnv: w.softwareEnv, CacheDir: s.cachesDir()}
	if w.plan.Network == walls.ProxiedOnly {
		e.ProxyEnv = outlet.Environment(w.proxyAddr, w.rules)
	}
	if w.plan.NetworkOnly {
		return s.execEnvironment(append(e.ProxyEnv, extra...), worktree, dir)
	}
	env := slices.Concat([]string{"PWD=" + dir}, refLockWaitEnv, e.Variables(), s.identityVariables(worktree), []string{core.IsolationVariable + "=" + settings.IsolationOS})
	return settings.WithGitSettings(settings.DedupeEnv(env), s.Repo.Git.Config.Value("gpg.format"))
}

// refLockWaitEnv makes git wait for ref locks: one that git on the host takes while it imports the work of another
// command stays visible in the sandbox until handoff removes it (scriptRemoveRefLock).
var refLockWaitEnv = []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.filesRefLockTimeout", "GIT_CONFIG_VALUE_0=10000"}

// helperEnvironment returns the environment of our own scripts behind the walls.
func (s *Sandbox) helperEnvironment(w Walls) []string {
	var env []string
	for _, kv := range (settings.WalledEnvironment{CallerEnv: s.Repo.Opts.Env, Policy: settings.Policy{ToolCaches: w.policy.ToolCaches}, Plan: w.applied.OnMachine(), CacheDir: s.cachesDir()}).Variables() {
		if name, _, _ := strings.Cut(kv, "="); slices.Contains([]string{"PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR"}, name) || strings.HasPrefix(name, "GIT_CONFIG_") {
			if path, is := strings.CutPrefix(kv, "PATH="); is {
				kv = "PATH=" + settings.ReadOnlyFirst(path, w.applied.OnMachine())
			}
			env = append(env, kv)
		}
	}
	return append(env, core.InvocationVariable+"="+s.ID, "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1", "GIT_ALLOW_PROTOCOL=none")
}
