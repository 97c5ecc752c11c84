package gitagency

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// policySection is the subsection of the keys that open walls (agency.sandbox.*). No profile and no runner can have
// this name.
const policyName = "sandbox"

// Keys that open walls. Each may be set many times and all values count; an empty value clears those before it, as in
// git's own multi-valued keys.
const (
	readKey  = confine.ReadKey
	writeKey = confine.WriteKey
	hideKey  = confine.HideKey
	envKey   = "agency." + policyName + ".env"
)

// privatePrefix marks a value of writeKey as a directory that can be written in the sandbox alone.
const privatePrefix = "private:"

// policy is what the walls leave open: the user's settings and the defaults.
type policy struct {
	confine.Policy

	home         string
	runtimeDir   string
	agentSockets []string
	path         []string // directories of PATH

	env    []string // names of variables, or patterns such as NAME_*
	caches []cache
}

// cache is the cache directory of a tool.
type cache struct {
	variable string // variable that relocates the cache; may be empty
	path     string // with symbolic links resolved, if it exists
	there    bool
}

// wallsPolicy reads the policy of the walls from the configuration.
func (r *Repository) policy() (policy, error) {
	homes := []string{}
	if u, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil { // HOME may be that of the user who called sudo
		homes = append(homes, u.HomeDir)
	}
	return readPolicy(r.git.Config, r.opts.Env, homes)
}

// readPolicy reads the policy from a configuration and an environment. homes are further home directories, whose
// secrets are hidden too.
func readPolicy(config git.Config, env, homes []string) (policy, error) {
	if err := checkPolicyKeys(config); err != nil {
		return policy{}, err
	}
	home := proc.Variable(env, "HOME")
	p := policy{
		home: home, runtimeDir: proc.Variable(env, "XDG_RUNTIME_DIR"),
		agentSockets: agentSockets(env), path: filepath.SplitList(proc.Variable(env, "PATH")),
		caches: findCaches(env),
	}
	for _, h := range slices.Compact(append([]string{home}, homes...)) {
		p.Secrets = append(p.Secrets, below(h, secretFiles)...)
	}
	p.Secrets = append(p.Secrets, secretsNamed(env)...)
	p.Secrets = append(p.Secrets, systemSecrets...)
	for _, c := range p.caches {
		p.Caches = append(p.Caches, c.path)
	}
	reads, err := grants(config, readKey, home)
	if err != nil {
		return policy{}, err
	}
	hides, err := grants(config, hideKey, home)
	if err != nil {
		return policy{}, err
	}
	writes, err := grants(config, writeKey, home)
	if err != nil {
		return policy{}, err
	}
	for _, g := range writes {
		if g.private {
			p.Private = append(p.Private, g.path)
		} else {
			p.Write = append(p.Write, g.path)
		}
	}
	for _, g := range reads {
		p.Read = append(p.Read, g.path)
	}
	for _, g := range hides {
		p.Hide = append(p.Hide, g.path)
	}
	for _, g := range writes {
		if marked := markedAround(g.path); marked != "" {
			return policy{}, misconfigured(g.key, g.setting, "a path outside of "+marked+", where work is integrated or another sandbox is")
		}
	}
	for _, g := range append(reads, writes...) {
		if g.redirected(p.Write) {
			return policy{}, misconfigured(g.key, g.setting, "a path that commands in sandboxes cannot lead elsewhere")
		}
	}
	for _, s := range listed(config, envKey) {
		if err := checkVariable(s.Value); err != nil {
			return policy{}, misconfigured(envKey, s, wantVariable)
		}
		p.env = append(p.env, s.Value)
	}
	return p, nil
}

// checkPolicyKeys refuses unknown keys below agency.sandbox: a misspelt key would be a wall that is missing.
func checkPolicyKeys(config git.Config) error {
	for _, key := range slices.Sorted(maps.Keys(config)) {
		name, ours := strings.CutPrefix(key, "agency."+policyName+".")
		if ours && !slices.Contains([]string{readKey, writeKey, hideKey, envKey}, "agency."+policyName+"."+name) {
			settings := config[key]
			return misconfigured("key "+key, settings[len(settings)-1], "agency.sandbox.read, .write, .hide or .env")
		}
	}
	return nil
}

// fillRequest sets those fields of a request for walls that do not depend on the sandbox.
func (p policy) draws(req *confine.Request) {
	req.Home, req.RuntimeDir, req.AgentSockets, req.Path, req.Policy = p.home, p.runtimeDir, p.agentSockets, p.path, p.Policy
}

// integrationTrees lists the trees that people work in: all worktrees of this repository, adopted or not, and, if the
// policy makes anything besides the sandbox writable, the recorded integration worktrees of all other repositories.
func (r *Repository) integrationTrees(p policy) ([]string, error) {
	var trees []string
	if filepath.Base(r.CommonDir) == ".git" {
		trees = append(trees, filepath.Dir(r.CommonDir))
	}
	if tree := r.git.Config.Value("core.worktree"); tree != "" {
		if !filepath.IsAbs(tree) {
			tree = filepath.Join(r.CommonDir, tree)
		}
		trees = append(trees, tree)
	}
	entries, err := r.git.Entries()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Path != "" && !guard.Contains(r.DataDir, e.Path) { // a tree in the data directory is a sandbox, or listed from its record below
			trees = append(trees, e.Path)
		}
	}
	repos := []string{r.ID}
	if len(p.Write)+len(p.Private) > 0 {
		found, err := os.ReadDir(r.store.RepoDir(""))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, f := range found {
			repos = append(repos, f.Name())
		}
	}
	for _, repo := range repos {
		worktrees, err := r.store.Worktrees(repo, nil)
		if err != nil {
			return nil, err
		}
		for _, w := range worktrees {
			if w.Record.State != store.Archived {
				trees = append(trees, w.Tree)
			}
		}
	}
	for i, tree := range trees {
		trees[i] = cmp.Or(resolved(tree), filepath.Clean(tree))
	}
	slices.Sort(trees)
	return slices.Compact(trees), nil
}

// markedAncestor returns the innermost directory at or above path that has a marker; empty if there is none. A marker
// that cannot be read counts as present.
func markedAround(path string) string {
	for dir := path; ; dir = filepath.Dir(dir) {
		for _, m := range []guard.Marker{guard.Integration, guard.Sandbox} {
			if marked, err := m.In(dir); marked || err != nil {
				return dir
			}
		}
		if dir == "/" {
			return ""
		}
	}
}

// multiValues returns the values of a multi-valued key; an empty value clears those before it.
func listed(config git.Config, key string) []git.Setting {
	var values []git.Setting
	for _, s := range config[canonical(key)] {
		if s.Value == "" {
			values = nil
			continue
		}
		values = append(values, s)
	}
	return values
}

const (
	wantPath     = "an absolute path, or one that begins with ~/"
	wantGrant    = "an absolute path, or one that begins with ~/; after private: to be written in the sandbox alone"
	wantVariable = "the name of a variable, or how names begin and then a *"
)

// grant is one path of a key, as set and resolved.
type grant struct {
	key     string
	setting git.Setting
	named   string // absolute path as configured
	path    string // with symbolic links resolved
	private bool
}

// readGrants returns the paths of a key. A path to write must exist; other paths that do not exist are skipped.
func grants(config git.Config, key, home string) ([]grant, error) {
	var found []grant
	for _, s := range listed(config, key) {
		value, private := s.Value, false
		if key == writeKey {
			value, private = strings.CutPrefix(value, privatePrefix)
		}
		if err := checkPlace(key, s.Value, home); err != nil {
			return nil, misconfigured(key, s, wanted(key))
		}
		named := expandHome(value, home)
		path, err := guard.Resolve(named)
		if err == nil {
			_, err = os.Lstat(path)
		}
		switch {
		case err == nil:
			found = append(found, grant{key, s, named, path, private})
		case strings.ContainsAny(value, "*?["):
			return nil, misconfigured(key, s, "the path of one thing, in which * stands for nothing else")
		case key == writeKey:
			return nil, misconfigured(key, s, "something that exists")
		}
	}
	return found, nil
}

// isRedirectable reports whether the configured path goes through a writable directory and leads out of it: a command
// in a sandbox could then change a symbolic link there, and so choose what is granted.
func (g grant) redirected(writable []string) bool {
	holds := func(dir, path string) bool { return dir == path || guard.Contains(dir, path) }
	for dir := filepath.Dir(g.named); dir != "/"; dir = filepath.Dir(dir) {
		at := resolved(dir)
		if slices.ContainsFunc(writable, func(w string) bool { return holds(w, at) && !holds(w, g.path) }) {
			return true
		}
	}
	return false
}

// checkPathSetting validates a value of a key that names paths. It does not check that the path exists.
func checkPlace(key, value, home string) error {
	path := value
	if key == writeKey {
		path = strings.TrimPrefix(path, privatePrefix)
	}
	if value == "" || checkPath(expandHome(path, home)) == nil {
		return nil
	}
	return &InvalidError{What: "path", Value: value, Want: wanted(key)}
}

// wantFor describes the valid values of a key that names paths.
func wanted(key string) string {
	if key == writeKey {
		return wantGrant
	}
	return wantPath
}

// checkVariableSetting validates a value of agency.sandbox.env. The empty value is valid: it clears those before it.
func checkVariables(value string) error {
	if value == "" {
		return nil
	}
	return checkVariable(value)
}

// checkVariablePattern accepts NAME and NAME_*. A lone * would pass every variable.
func checkVariable(pattern string) error {
	name := strings.TrimSuffix(pattern, "*")
	valid := name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return c != '_' && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (c < '0' || c > '9')
	})
	if !valid {
		return &InvalidError{What: "variable", Value: pattern, Want: wantVariable}
	}
	return nil
}

// resolveOrEmpty resolves the symbolic links of a path; empty if that fails.
func resolved(path string) string {
	path, err := guard.Resolve(path)
	if err != nil {
		return ""
	}
	return path
}

// checkProfileName refuses a profile with the name of policySection.
func reservedName(profile string) error {
	if profile != policyName {
		return nil
	}
	return &InvalidError{What: "profile", Value: profile, Want: fmt.Sprintf("another name: agency.%s.* says what walls leave open", policyName)}
}
