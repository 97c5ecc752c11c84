package allow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/outlet"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// widenOutputs returns outputs with those of a request added.
func widenOutputs(have, add string) (string, error) {
	hosts, some := strings.CutPrefix(add, settings.HostsPrefix)
	switch {
	case add == "" || have == settings.OutputsOpen && some:
		return have, nil
	case add == settings.OutputsOpen:
		return add, nil
	case add == "none":
		return "", &fault.InvalidError{What: "outputs", Value: add, Want: "open, or hosts:<list> with hosts to add: allow only widens; for a sandbox without network, start another: git agency start --outputs none"}
	case !some:
		return "", &fault.InvalidError{What: "outputs", Value: add, Want: "open, or hosts:<list> with hosts to add"}
	}
	if known, listed := strings.CutPrefix(have, settings.HostsPrefix); listed {
		hosts += "," + known
	}
	rules, err := outlet.ParseRules(hosts)
	if err != nil {
		return "", &fault.InvalidError{What: "outputs", Value: add, Want: "valid hosts: " + err.Error()}
	}
	return settings.HostsPrefix + rules.String(), nil
}

// widenLimits returns the limits of a sandbox with those of a request in their place. A timeout below zero removes that
// limit.
func widenLimits(ctx context.Context, r *core.Repository, m store.InvocationMeta, add confine.Limits) (store.Limits, error) {
	have := sandbox.LimitsFromRecord(m.Limits)
	wide := have
	for _, k := range confine.LimitKinds() {
		was, now := have.Value(k), add.Value(k)
		if now == 0 {
			continue
		}
		narrower := was == 0 || now < was
		switch {
		case k == confine.NiceLimit:
			narrower = now > was
		case k == confine.TimeoutLimit && now < 0:
			narrower = false
		}
		if narrower {
			invalid := &fault.InvalidError{What: k.String(), Value: k.Format(now), Want: wantWider(k, was)}
			if was == 0 {
				return m.Limits, &noLimitError{m.InvocationID, invalid}
			}
			return m.Limits, invalid
		}
	}
	if add.Memory != 0 {
		wide.Memory = add.Memory
	}
	if add.Processes != 0 {
		wide.Processes = add.Processes
	}
	if add.FileSize != 0 {
		wide.FileSize = add.FileSize
	}
	if add.Nice != 0 {
		wide.Nice = add.Nice
	}
	if add.Timeout != 0 {
		wide.Timeout = max(add.Timeout, 0)
	}
	wide.BestEffort = have.BestEffort || add.BestEffort
	if wide == have {
		return m.Limits, nil
	}
	return sandbox.EnforceableLimits(ctx, r, wide)
}

func wantWider(k confine.LimitKind, was int64) string {
	if was == 0 {
		return "a limit that the sandbox has"
	}
	than := "at least "
	if k == confine.NiceLimit {
		than = "at most "
	}
	return than + k.Format(was) + ", the limit of the sandbox: allow only widens"
}

// noLimitError refuses to raise a limit that a sandbox does not have.
type noLimitError struct {
	id      string
	invalid *fault.InvalidError
}

func (e *noLimitError) Error() string {
	return fmt.Sprintf("the sandbox has no %[1]s limit to raise; to limit one command: git agency exec %[2]s --%[1]s %[3]s -- <command>", e.invalid.What, e.id, e.invalid.Value)
}

func (e *noLimitError) Unwrap() error { return e.invalid }

// granter checks the paths that are allowed to a sandbox.
type granter struct {
	repo      *core.Repository
	sandbox   *sandbox.Sandbox
	isolation string
	named     []walls.NamedPath // the paths that resolve has returned, as they were given
	linkNames []string          // those of them with symbolic links
}

func (g granter) refuse(key, path, why, remedy string) error {
	return &fault.GrantError{ID: g.sandbox.ID, Flag: settings.AllowFlags[key], Path: path, Why: why, Remedy: remedy}
}

// resolveAll returns the paths of a flag as they are recorded: absolute, without symbolic links, which could be changed later.
func (g *granter) resolveAll(key string, paths []string) ([]string, error) {
	var all []string
	for _, given := range paths {
		path, err := g.resolve(key, given)
		if err != nil {
			return nil, err
		}
		all = append(all, path)
	}
	return all, nil
}

func (g *granter) resolve(key, given string) (string, error) {
	path, private := given, false
	if key == settings.WriteKey {
		path, private = strings.CutPrefix(given, settings.PrivatePrefix)
	}
	home := filepath.Clean(proc.Getenv(g.repo.Opts.Env, "HOME"))
	path = settings.ExpandHome(path, home)
	switch {
	case g.isolation != settings.IsolationOS:
		return "", g.refuse(key, given, "the sandbox has no walls around files: isolation is "+g.isolation, "its commands read and write what you can; for walls, start another: git agency start --isolation os")
	case path == "" || !utf8.ValidString(path) || strings.ContainsRune(path, 0):
		return "", &fault.InvalidError{What: "path", Value: given, Want: "a path in valid UTF-8"}
	case !filepath.IsAbs(path):
		path = g.repo.CallerDir + "/" + path
	}
	real, err := guard.Resolve(path)
	if err == nil {
		_, err = os.Lstat(real)
	}
	if err != nil {
		remedy := "make it accessible to you first"
		if errors.Is(err, fs.ErrNotExist) {
			remedy = "create it first"
			if private && guard.Contains(home, path) {
				remedy += "; in a private home commands can create it without a grant"
			}
		}
		var failed *os.PathError
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return "", g.refuse(key, given, err.Error(), remedy)
	}
	// A command of a sandbox could replace a symbolic link there, and so choose what is granted.
	for dir := filepath.Clean(path); dir != "/"; dir = filepath.Dir(dir) {
		if at := guard.ResolveOrEmpty(dir); guard.IsOrContains(g.repo.DataDir, at) {
			return "", g.refuse(key, given, "it is in the data directory, where sandboxes are", "name a path elsewhere; 'git agency put' copies files into a sandbox")
		}
	}
	if home := guard.ResolveOrEmpty(home); real == "/" || home != "" && guard.IsOrContains(real, home) {
		return "", g.refuse(key, given, "it is or contains your home directory", "name a path below it")
	}
	if key == settings.ReadKey && guard.IsOrContains(g.repo.CommonDir, real) {
		return "", g.refuse(key, given, "every command can read the git directory, and write to it in an overlay", "run the command: it needs no grant")
	}
	g.named = append(g.named, walls.NamedPath{Key: key, Name: path, Path: real})
	if name := filepath.Clean(path); guard.ResolveOrEmpty(name) == real && name != real {
		g.linkNames = append(g.linkNames, name)
	}
	if private {
		return settings.PrivatePrefix + real, nil
	}
	return real, nil
}

// check plans the walls of a sandbox with its changed record, and refuses a path that they do not grant.
func (g granter) check(m store.InvocationMeta, read, write []string) error {
	e, err := g.sandbox.ExplainWalls(sandbox.WallsRequest{Primitives: m.Primitives, Runner: m.Runner, Allowed: m.WallGrants(), Named: g.named})
	if err != nil {
		return g.asGrantError(err)
	}
	for _, skipped := range e.Policy.Skipped {
		if slices.Contains(read, skipped.Setting.Value) || slices.Contains(write, skipped.Setting.Value) {
			return &fault.GrantError{ID: g.sandbox.ID, Flag: skipped.Setting.Key, Path: skipped.Setting.Value, Why: skipped.Setting.Problem}
		}
	}
	for _, path := range read {
		if real := guard.ResolveOrEmpty(path); !e.Plan.IsVisible(real) {
			return g.refuse(settings.ReadKey, path, whyNot(e, real), "name another path")
		}
	}
	for _, value := range write {
		path, private := strings.CutPrefix(value, settings.PrivatePrefix)
		real := guard.ResolveOrEmpty(path)
		if private && e.Plan.IsWritable(real) || e.Plan.VisibilityOf(real) == walls.Writable {
			continue
		}
		return g.refuse(settings.WriteKey, value, whyNot(e, real), "name another path")
	}
	return nil
}

// whyNot says how a path appears behind walls although something else was asked for, and why.
func whyNot(e sandbox.ExplainedWalls, path string) string {
	cover := walls.CoverOf(e.Paths, path)
	return fmt.Sprintf("it stays %s: %s", accessOf[cover.Visibility], e.Policy.Explain(cover.Cause, ""))
}

// asGrantError makes a *fault.GrantError of an error about a grant in the record.
func (g granter) asGrantError(err error) error {
	var refused *walls.RefusedError
	if errors.As(err, &refused) && refused.Flag != "" {
		if i := slices.IndexFunc(g.named, func(p walls.NamedPath) bool {
			return p.Key == refused.Key && p.Name == refused.Path && p.Path != p.Name
		}); i >= 0 {
			refused.Remedy = "to grant what it leads to now, name " + g.named[i].Path
		}
		return &fault.GrantError{ID: g.sandbox.ID, Flag: refused.Flag, Path: refused.Path, Why: refused.Why, Remedy: refused.Remedy}
	}
	var invalid *fault.InvalidError
	if errors.As(err, &invalid) && invalid.AllowFlag != "" {
		return &fault.GrantError{ID: g.sandbox.ID, Flag: invalid.AllowFlag, Path: invalid.Value, Why: "it is not allowed", Remedy: "name " + invalid.Want}
	}
	return err
}
