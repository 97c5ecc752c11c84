package settings

import (
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
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/copies"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// policySection is the subsection of the keys that open walls (agency.sandbox.*). No profile and no runner can have
// this name.
const policySection = "sandbox"

// Keys that open walls. Each may be set many times and all values count; an empty value clears those before it, as in
// git's own multi-valued keys.
const (
	ReadKey  = walls.ReadKey
	WriteKey = walls.WriteKey
	hideKey  = walls.HideKey
	envKey   = "agency." + policySection + ".env"
)

// PrivatePrefix marks a value of WriteKey as a directory that can be written in the sandbox alone.
const PrivatePrefix = "private:"

// Policy is what the walls leave open: the user's settings and the defaults.
type Policy struct {
	walls.Policy

	home         string
	runtimeDir   string
	agentSockets []string
	path         []string // directories of PATH

	env        []string // names of variables, or patterns such as NAME_*
	ToolCaches []ToolCache

	privateHome   bool
	tools         []string // directories of tools below the home
	toolRootCount int      // number of the first tools that come from toolRoots, and do not depend on PATH
	logins        []string // files and directories with the login of the sandbox's own agent
	privateFiles  []string // files below the home that the user made private

	grants  []grant         // of all keys
	Skipped []*SettingError // grants that are ignored, because their paths were not found
}

// ToolCache is the cache directory of a tool.
type ToolCache struct {
	variable string // variable that relocates the cache; may be empty
	named    string // as configured
	path     string // with symbolic links resolved, if it exists
	exists   bool
}

// WallsPolicy reads the policy of the walls from the configuration, and adds the grants in the record of a sandbox.
func (r *Reader) WallsPolicy(allowed store.Grants) (Policy, error) {
	homes := []string{}
	if u, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil { // HOME may be that of the user who called sudo
		homes = append(homes, u.HomeDir)
	}
	return readPolicy(r.Config, r.Env, homes, allowed)
}

// readPolicy reads the policy from a configuration and an environment. homes are further home directories, whose
// secrets are hidden too.
func readPolicy(config config.Settings, env, homes []string, allowed store.Grants) (Policy, error) {
	if err := checkPolicyKeys(config); err != nil {
		return Policy{}, err
	}
	home := proc.Getenv(env, "HOME")
	p := Policy{
		home: home, runtimeDir: proc.Getenv(env, "XDG_RUNTIME_DIR"),
		agentSockets: findAgentSockets(env), path: filepath.SplitList(proc.Getenv(env, "PATH")),
		ToolCaches: findCaches(env),
	}
	var err error
	if p.privateHome, err = readPrivateHome(config); err != nil {
		return Policy{}, err
	}
	if p.privateHome {
		p.tools, p.toolRootCount = findTools(env, home)
	}
	for _, h := range slices.Compact(append([]string{home}, homes...)) {
		p.Secrets = append(p.Secrets, joinAll(h, homeSecrets)...)
	}
	p.Secrets = append(p.Secrets, secretPathsFromEnv(env)...)
	p.Secrets = append(p.Secrets, systemSecrets...)
	reads, err := p.readGrants(config, ReadKey, allowed.Read)
	if err != nil {
		return Policy{}, err
	}
	hides, err := p.readGrants(config, hideKey, nil)
	if err != nil {
		return Policy{}, err
	}
	writes, err := p.readGrants(config, WriteKey, allowed.Write)
	if err != nil {
		return Policy{}, err
	}
	for _, g := range writes {
		if g.private {
			p.OverlayWrite = append(p.OverlayWrite, g.path)
		} else {
			p.Write = append(p.Write, g.path)
		}
		if g.private && p.privateHome && guard.Contains(home, g.configured) && isRegularFile(g.configured) {
			p.privateFiles = append(p.privateFiles, g.configured)
		}
	}
	p.grants = slices.Concat(reads, writes, hides)
	if err := p.fillCaches(); err != nil {
		return Policy{}, err
	}
	for _, g := range append(reads, writes...) {
		p.Names = append(p.Names, g.configured)
	}
	for _, g := range reads {
		p.Read = append(p.Read, g.path)
	}
	for _, g := range hides {
		p.Hide = append(p.Hide, g.path)
	}
	for _, g := range writes {
		if marked := markedAncestor(g.path); marked != "" {
			return Policy{}, InvalidSetting(g.key, g.setting, "a path outside of "+marked+", which is an integration worktree or a sandbox")
		}
	}
	for _, g := range append(reads, writes...) {
		if g.isRedirectable(p.Write) {
			return Policy{}, InvalidSetting(g.key, g.setting, "a path whose symbolic links commands in sandboxes cannot change")
		}
	}
	for _, s := range MultiValues(config, envKey) {
		if err := checkVariablePattern(s.Value); err != nil {
			return Policy{}, InvalidSetting(envKey, s, wantVariable)
		}
		p.env = append(p.env, s.Value)
	}
	return p, nil
}

// checkPolicyKeys refuses unknown keys below agency.sandbox: a misspelt key would be a wall that is missing.
func checkPolicyKeys(config config.Settings) error {
	for _, key := range slices.Sorted(maps.Keys(config)) {
		name, ours := strings.CutPrefix(key, "agency."+policySection+".")
		if ours && !slices.Contains([]string{ReadKey, WriteKey, hideKey, envKey, homeKey}, "agency."+policySection+"."+name) {
			settings := config[key]
			return InvalidSetting("key "+key, settings[len(settings)-1], "agency.sandbox.read, .write, .hide, .env or .home")
		}
	}
	return nil
}

// FillRequest sets those fields of a request for walls that do not depend on the sandbox.
func (p Policy) FillRequest(req *walls.Request) {
	req.Home, req.RuntimeDir, req.AgentSockets, req.PathDirs, req.Policy = p.home, p.runtimeDir, p.agentSockets, p.path, p.Policy
	req.PrivateHome, req.Tools, req.Logins = p.privateHome, p.tools, p.logins
}

// markedAncestor returns the innermost directory at or above path that has a marker; empty if there is none. A marker
// that cannot be read counts as present.
func markedAncestor(path string) string {
	for dir := path; ; dir = filepath.Dir(dir) {
		for _, m := range []guard.Marker{guard.Integration, guard.Sandbox} {
			if marked, err := m.IsIn(dir); marked || err != nil {
				return dir
			}
		}
		if dir == "/" {
			return ""
		}
	}
}

// MultiValues returns the values of a multi-valued key; an empty value clears those before it.
func MultiValues(cfg config.Settings, key string) []config.Setting {
	var values []config.Setting
	for _, s := range cfg[CanonicalKey(key)] {
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
	wantGrant    = "an absolute path, or one that begins with ~/; with the prefix private: for an overlay of the sandbox"
	wantVariable = "the name of a variable, or a prefix followed by *"
)

// grant is one path of a key, as set and resolved.
type grant struct {
	key        string
	setting    config.Setting
	configured string // absolute path as configured
	path       string // with symbolic links resolved
	private    bool
}

// allowScope is the scope of a grant in the record of a sandbox, which 'git agency allow' made.
const allowScope = "allow"

// AllowFlags maps the keys of grants to the flags of 'git agency allow'.
var AllowFlags = map[string]string{ReadKey: "--read", WriteKey: "--write"}

// withAllowed returns the values of a key, with those in the record of a sandbox after them.
func withAllowed(cfg config.Settings, key string, allowed []string) []config.Setting {
	values := MultiValues(cfg, key)
	for _, value := range allowed {
		values = append(values, config.Setting{Value: value, Scope: allowScope, Origin: "git agency allow"})
	}
	return values
}

// readGrants returns the paths of a key, and those that the record of a sandbox has for it. Paths that cannot be found are
// skipped: the same configuration may be used on machines that lack some of them.
func (p *Policy) readGrants(config config.Settings, configKey string, allowed []string) ([]grant, error) {
	var found []grant
	for _, s := range withAllowed(config, configKey, allowed) {
		key := configKey
		if s.Scope == allowScope {
			key = AllowFlags[configKey]
		}
		value, private := s.Value, false
		if configKey == WriteKey {
			value, private = strings.CutPrefix(value, PrivatePrefix)
		}
		if err := checkPathSetting(configKey, s.Value, p.home); err != nil {
			return nil, InvalidSetting(key, s, wantFor(configKey))
		}
		named := ExpandHome(value, p.home)
		path, err := guard.Resolve(named)
		if err == nil {
			_, err = os.Lstat(path)
		}
		switch {
		case err == nil && s.Scope == allowScope && path != named: // it had no symbolic link when it was allowed
			return nil, InvalidSetting(key, s, "a path that leads to the same place as when it was allowed, not to "+path+": to take it back, 'git agency allow <id> --reset'")
		case err == nil && private && p.privateHome && guard.Contains(p.home, named) && sizeOf(path) > copies.MaxSize:
			p.skip(key, s, fmt.Sprintf("a file of more than %d MiB cannot be private; grant its directory", copies.MaxSize>>20))
		case err == nil:
			found = append(found, grant{key, s, named, path, private})
		case strings.ContainsAny(value, "*?["):
			return nil, InvalidSetting(key, s, "a path without wildcards: *, ? and [ are not expanded")
		case private && p.privateHome && guard.Contains(p.home, named) && isMissing(err): // it begins empty, as all of the private home
		case isMissing(err):
			p.skip(key, s, "there is no such file or directory")
		default: // commands cannot look it up either
			p.skip(key, s, err.Error())
		}
	}
	return found, nil
}

// isMissing reports whether an error says that there is nothing at a path.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// sizeOf returns the size of a regular file; zero for anything else.
func sizeOf(path string) int64 {
	if fi, err := os.Lstat(path); err == nil && fi.Mode().IsRegular() {
		return fi.Size()
	}
	return 0
}

// skip records a grant that is ignored.
func (p *Policy) skip(key string, s config.Setting, why string) {
	p.Skipped = append(p.Skipped, &SettingError{Setting{Key: key, Value: s.Value, Scope: s.Scope, Origin: s.Origin, Problem: why}})
}

// isRedirectable reports whether the configured path goes through a writable directory and leads out of it: a command
// in a sandbox could then change a symbolic link there, and so choose what is granted.
func (g grant) isRedirectable(writable []string) bool {
	for dir := filepath.Dir(g.configured); dir != "/"; dir = filepath.Dir(dir) {
		at := guard.ResolveOrEmpty(dir)
		if slices.ContainsFunc(writable, func(w string) bool { return guard.IsOrContains(w, at) && !guard.IsOrContains(w, g.path) }) {
			return true
		}
	}
	return false
}

// checkPathSetting validates a value of a key that names paths. It does not check that the path exists.
func checkPathSetting(key, value, home string) error {
	path := value
	if key == WriteKey {
		path = strings.TrimPrefix(path, PrivatePrefix)
	}
	if value == "" || checkAbsolutePath(ExpandHome(path, home)) == nil {
		return nil
	}
	return &fault.InvalidError{What: "path", Value: value, Want: wantFor(key)}
}

// wantFor describes the valid values of a key that names paths.
func wantFor(key string) string {
	if key == WriteKey {
		return wantGrant
	}
	return wantPath
}

// checkVariableSetting validates a value of agency.sandbox.env. The empty value is valid: it clears those before it.
func checkVariableSetting(value string) error {
	if value == "" {
		return nil
	}
	return checkVariablePattern(value)
}

// checkVariablePattern accepts NAME and NAME_*. A lone * would pass every variable.
func checkVariablePattern(pattern string) error {
	name := strings.TrimSuffix(pattern, "*")
	valid := name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return c != '_' && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (c < '0' || c > '9')
	})
	if !valid {
		return &fault.InvalidError{What: "variable", Value: pattern, Want: wantVariable}
	}
	return nil
}

// checkProfileName refuses a profile with the name of policySection.
func checkProfileName(profile string) error {
	if profile != policySection {
		return nil
	}
	return &fault.InvalidError{What: "profile", Value: profile, Want: fmt.Sprintf("another name: agency.%s.* are the settings of the walls", policySection)}
}
