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

// policyName is what stands between the dots of the keys that say what walls leave open. No profile and no
// agent can go by it.
const policyName = "sandbox"

// The keys of what walls leave open. Each may be there many times, and all values count; an empty one
// forgets those before it, as with git's own lists.
const (
	readKey  = confine.ReadKey
	writeKey = confine.WriteKey
	hideKey  = confine.HideKey
	envKey   = "agency." + policyName + ".env"
)

// privatePrefix is how a directory is granted that can be written in the sandbox alone.
const privatePrefix = "private:"

// policy is what walls leave open: what the user says, and what is so by default.
type policy struct {
	confine.Policy

	home         string
	runtimeDir   string
	agentSockets []string
	path         []string // the directories of PATH

	env    []string // names of variables, or patterns such as NAME_*
	caches []cache
}

// cache is where a tool keeps things for the next time.
type cache struct {
	variable string // that can tell it another place; may be empty
	path     string // without symbolic links, as far as it is there
	there    bool
}

// policy reads what walls leave open.
func (r *Repository) policy() (policy, error) {
	homes := []string{}
	if u, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil { // HOME may be that of who called sudo
		homes = append(homes, u.HomeDir)
	}
	return readPolicy(r.git.Config, r.opts.Env, homes)
}

// readPolicy takes further homes, of which the secrets are hidden too.
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

// checkPolicyKeys refuses a key that means nothing: a wall that is misspelt is a wall that is not there.
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

// draws fills in what of a request for walls does not depend on the sandbox.
func (p policy) draws(req *confine.Request) {
	req.Home, req.RuntimeDir, req.AgentSockets, req.Path, req.Policy = p.home, p.runtimeDir, p.agentSockets, p.path, p.Policy
}

// integrationTrees lists the trees that people work in: of this repository all, whether or not they were
// adopted, and of others, when something besides the sandbox can be written, those on record.
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
		if e.Path != "" && !guard.Contains(r.DataDir, e.Path) { // there it is a sandbox, or on record
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

// markedAround is the tree of somebody's that a path is or lies in; empty when there is none. Markers that
// cannot be read are there.
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

// listed is every value of a key that counts.
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

// grant is a path that was set, and where it leads.
type grant struct {
	key     string
	setting git.Setting
	named   string // absolute
	path    string // without symbolic links
	private bool
}

// grants are the values of a key. What is to be written has to be there; of the others only what is.
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

// redirected reports whether the path goes through something that can be written and leads out of it: then
// whoever writes there decides what is granted.
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

// checkPlace checks a value of a key that names paths, without looking whether it is there.
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

func wanted(key string) string {
	if key == writeKey {
		return wantGrant
	}
	return wantPath
}

// checkVariables also takes the empty value, which forgets those before it.
func checkVariables(value string) error {
	if value == "" {
		return nil
	}
	return checkVariable(value)
}

// checkVariable wants NAME or NAME_*. A lone * would let everything through.
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

// resolved says where a path leads; empty when that cannot be told.
func resolved(path string) string {
	path, err := guard.Resolve(path)
	if err != nil {
		return ""
	}
	return path
}

// reservedName refuses a profile that goes by the name of the policy.
func reservedName(profile string) error {
	if profile != policyName {
		return nil
	}
	return &InvalidError{What: "profile", Value: profile, Want: fmt.Sprintf("another name: agency.%s.* says what walls leave open", policyName)}
}
