package settings

import (
	"fmt"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// policySection is the subsection of the keys that open walls (agency.sandbox.*).
const policySection = "sandbox"

// cloneSection is the subsection of agency.* with the settings of clones.
const cloneSection = "clone"

// Keys that open walls. Each may be set many times and all values count; an empty value clears those before it, as in
// git's own multi-valued keys.
const (
	ReadKey            = walls.ReadKey
	WriteKey           = walls.WriteKey
	hideKey            = walls.HideKey
	PassedVariablesKey = "agency." + policySection + ".env"
)

// PrivatePrefix marks a value of WriteKey as a directory that can be written in the sandbox alone.
const PrivatePrefix = store.PrivatePrefix

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
	p.LinkNames, p.Separate, p.Copied = allowed.LinkNames, allowed.Separate, allowed.Copied
	writes, err := p.readGrants(config, WriteKey, allowed.Write)
	if err != nil {
		return Policy{}, err
	}
	names := namesOfHome(home)
	for _, g := range writes {
		if g.private {
			p.OverlayWrite = append(p.OverlayWrite, g.path)
		} else {
			p.Write = append(p.Write, g.path)
		}
		if g.private && g.inPrivateHome && isRegularFile(g.configured) {
			p.privateFiles = append(p.privateFiles, names.rename(g.configured))
		}
	}
	p.grants = slices.Concat(reads, writes, hides)
	if err := p.fillCaches(); err != nil {
		return Policy{}, err
	}
	if p.privateHome {
		p.tools, p.toolRootCount = findTools(env, home, p.Write)
	}
	for _, g := range p.grants {
		p.Named = append(p.Named, walls.NamedPath{Key: g.key, Name: g.configured, Path: g.path})
	}
	for _, g := range reads {
		p.Read = append(p.Read, g.path)
	}
	for _, g := range hides {
		p.Hide = append(p.Hide, g.path)
	}
	for _, g := range writes {
		switch marked := markedAncestor(g.path); {
		case marked == "":
		case slices.Contains(p.Separate, g.path):
			return Policy{}, &fault.UnsafePathError{Path: g.path, Why: "the sandbox is over this directory, which is in " + marked + ", an integration worktree or a sandbox by now; to end the sandbox and keep its changes, use 'git agency discard'"}
		default:
			return Policy{}, invalidGrant(g.key, g.setting, "a path outside of "+marked+", which is an integration worktree or a sandbox")
		}
	}
	p.env, err = readPassedVariables(config)
	return p, err
}

// readPassedVariables returns the names and patterns of the variables that agency.sandbox.env lets through the walls.
func readPassedVariables(config config.Settings) (names []string, err error) {
	for _, s := range MultiValues(config, PassedVariablesKey) {
		if err := checkVariablePattern(s.Value); err != nil {
			return nil, InvalidSetting(PassedVariablesKey, s, wantVariable)
		}
		names = append(names, s.Value)
	}
	return names, nil
}

// PassedVariables returns the names of the variables that agency.sandbox.env lets through the walls, or patterns such as NAME_*.
func (r *Reader) PassedVariables() ([]string, error) { return readPassedVariables(r.Config) }

// checkPolicyKeys refuses unknown keys below agency.sandbox: a misspelt key would be a wall that is missing.
func checkPolicyKeys(config config.Settings) error {
	for _, key := range slices.Sorted(maps.Keys(config)) {
		name, ours := strings.CutPrefix(key, "agency."+policySection+".")
		if ours && !slices.Contains([]string{ReadKey, WriteKey, hideKey, PassedVariablesKey, homeKey}, "agency."+policySection+"."+name) {
			settings := config[key]
			return invalidKey(key, settings[len(settings)-1], "agency.sandbox.read, .write, .hide, .env or .home")
		}
	}
	return nil
}

// FillRequest sets those fields of a request for walls that do not depend on the sandbox.
func (p Policy) FillRequest(req *walls.Request) {
	req.Home, req.RuntimeDir, req.AgentSockets, req.PathDirs, req.Policy = p.home, p.runtimeDir, p.agentSockets, p.path, p.Policy
	req.PrivateHome, req.Tools, req.Logins = p.privateHome, p.tools, p.logins
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

const wantVariable = "the name of a variable, or a prefix followed by *"

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

// reservedSections maps the subsections of agency.* that are neither a profile nor a runner to what their keys are.
var reservedSections = map[string]string{
	policySection: "the settings of the walls", preflightSection: "the user's own checks of preflight", cloneSection: "the settings of clones",
	platformSection + "." + PlatformSlurm: "the settings of Slurm", platformSection + "." + PlatformPodman: "the settings of container engines",
}

// checkProfileName refuses a profile with the name of a reserved section.
func checkProfileName(profile string) error {
	what, reserved := reservedSections[profile]
	if !reserved {
		return nil
	}
	return &fault.InvalidError{What: "profile", Value: profile, Want: fmt.Sprintf("another name: agency.%s.* are %s", profile, what)}
}
