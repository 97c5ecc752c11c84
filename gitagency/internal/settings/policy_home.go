package settings

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/copies"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/toolconfig"
)

// homeKey is the key with the kind of home directory behind walls.
const homeKey = "agency." + policySection + ".home"

// The values of homeKey.
const (
	homePrivate  = "private"
	homeReadOnly = "readonly"
)

const wantHome = homePrivate + " or " + homeReadOnly

func checkHomeSetting(value string) error {
	if value == homePrivate || value == homeReadOnly {
		return nil
	}
	return &fault.InvalidError{What: "home", Value: value, Want: wantHome}
}

// readPrivateHome reports whether commands behind walls have a home directory of their own.
func readPrivateHome(cfg config.Settings) (bool, error) {
	s, set := cfg.Last(homeKey)
	if !set {
		return true, nil
	}
	if checkHomeSetting(s.Value) != nil {
		return false, InvalidSetting(homeKey, s, wantHome)
	}
	return s.Value == homePrivate, nil
}

// toolRoots lists where tools that are installed in a home directory keep their programs: below the directory that a
// variable names, else below the home. Of a directory that also holds credentials or projects, only parts are listed.
var toolRoots = []struct {
	variable, home string
	parts          []string // directories below the base; nil is the base itself
}{
	{"", ".local", []string{"bin", "lib", "opt"}},
	{"", ".local/share", []string{
		"mise", "rtx", "pnpm", "uv/tools", "uv/python", "pipx", "fnm", "nvim/mason", "virtualenvs", "pypoetry/venv", "cargo/bin", "rustup", "go/bin",
		"gem/ruby", "claude/versions", "cursor-agent/versions", "coursier", "JetBrains/Toolbox/scripts",
	}},
	{"CARGO_HOME", ".cargo", []string{"bin", "registry", "git"}},
	{"RUSTUP_HOME", ".rustup", nil},
	{"GOPATH", "go", []string{"bin", "pkg"}},
	{"GOROOT", "", nil},
	{"GOBIN", "", nil},
	{"NVM_DIR", ".nvm", nil},
	{"VOLTA_HOME", ".volta", nil},
	{"FNM_DIR", ".fnm", nil},
	{"N_PREFIX", "n", []string{"bin", "lib", "n"}},
	{"PNPM_HOME", "", nil},
	{"BUN_INSTALL", ".bun", []string{"bin", "install"}},
	{"DENO_INSTALL", ".deno", []string{"bin"}},
	{"PYENV_ROOT", ".pyenv", nil},
	{"VIRTUAL_ENV", "", nil},
	{"WORKON_HOME", ".virtualenvs", nil},
	{"CONDA_PREFIX", "", nil},
	{"POETRY_HOME", ".poetry", []string{"bin", "lib", "venv"}},
	{"PIPX_HOME", ".local/pipx", nil},
	{"RBENV_ROOT", ".rbenv", nil},
	{"GEM_HOME", ".gem", []string{"bin", "gems", "specifications", "extensions", "ruby"}},
	{"", ".rvm", nil},
	{"JENV_ROOT", ".jenv", nil},
	{"SDKMAN_DIR", ".sdkman", nil},
	{"JAVA_HOME", ".jdks", nil},
	{"ANDROID_HOME", "Android/Sdk", nil},
	{"FLUTTER_ROOT", "flutter", nil},
	{"ASDF_DATA_DIR", ".asdf", nil},
	{"NODENV_ROOT", ".nodenv", nil},
	{"GOENV_ROOT", ".goenv", nil},
	{"DOTNET_ROOT", ".dotnet", nil},
	{"OPAMROOT", ".opam", nil},
	{"", ".ghcup", nil},
	{"", ".cabal", []string{"bin", "store", "packages"}},
	{"STACK_ROOT", ".stack", []string{"programs", "snapshots", "pantry"}},
	{"ELAN_HOME", ".elan", nil},
	{"", ".juliaup", []string{"bin", "juliaup"}},
	{"JULIA_DEPOT_PATH", ".julia", []string{"juliaup", "registries", "packages", "artifacts", "compiled"}},
	{"MIX_HOME", ".mix", nil},
	{"COMPOSER_HOME", ".composer", []string{"vendor"}},
	{"", ".config/composer", []string{"vendor"}},
	{"", ".config/yarn", []string{"global"}},
	{"HOMEBREW_PREFIX", ".linuxbrew", nil},
	{"", ".nix-profile", nil},
	{"", ".local/state/nix", []string{"profile", "profiles"}},
	{"", "miniconda3", nil},
	{"", "miniforge3", nil},
	{"", "mambaforge", nil},
	{"", "anaconda3", nil},
	{"", "perl5", nil},
}

// findTools returns the directories of tools below a home, with symbolic links as they are configured, also those that do
// not exist: rootCount tool roots first, and then for other directories on PATH what belongs to the programs there.
// Links in directories that commands can write to are not followed.
func findTools(env []string, home string, writable []string) (tools []string, rootCount int) {
	if !filepath.IsAbs(home) {
		return nil, 0
	}
	for _, t := range toolRoots {
		var dirs []string
		if t.variable != "" {
			dirs = filepath.SplitList(proc.Getenv(env, t.variable))
		}
		if len(dirs) == 0 && t.home != "" {
			dirs = []string{filepath.Join(home, t.home)}
		}
		for _, dir := range dirs {
			switch {
			case !filepath.IsAbs(dir):
			case t.parts == nil:
				tools = append(tools, filepath.Clean(dir))
			default:
				tools = append(tools, joinAll(dir, t.parts)...)
			}
		}
	}
	s, rootCount := toolSearch{home: namesOfHome(home), writable: writable, tools: tools}, len(tools)
	for _, dir := range filepath.SplitList(proc.Getenv(env, "PATH")) {
		if dir = s.home.rename(dir); s.inHome(dir) {
			s.addPrograms(dir)
			s.addLinked(dir)
		}
	}
	return s.tools, rootCount
}

// homeNames are the name of a home directory and its path, which differ if the name has symbolic links.
type homeNames struct {
	name string
	path string // empty if it cannot be resolved
}

func namesOfHome(home string) homeNames {
	return homeNames{filepath.Clean(home), guard.ResolveOrEmpty(home)}
}

// rename returns a path with the name of the home at its beginning instead of the path of the home: paths can be compared
// only if all have the same one.
func (h homeNames) rename(path string) string {
	path = filepath.Clean(path)
	if h.path != "" && guard.Contains(h.path, path) {
		return filepath.Join(h.name, strings.TrimPrefix(path, h.path))
	}
	return path
}

// toolSearch collects the directories of tools below a home.
type toolSearch struct {
	home     homeNames
	writable []string // directories that commands of a sandbox can write to
	tools    []string
}

func (s *toolSearch) inHome(path string) bool { return guard.Contains(s.home.name, path) }

func (s *toolSearch) add(path string) {
	if !slices.ContainsFunc(s.tools, func(t string) bool { return guard.IsOrContains(t, path) }) {
		s.tools = append(s.tools, path)
	}
}

// addPrograms adds a directory with programs, and the directories beside it in which installed programs have their
// libraries and data. Other directories beside it may be anything.
func (s *toolSearch) addPrograms(dir string) {
	s.add(dir)
	if prefix := filepath.Dir(dir); filepath.Base(dir) == "bin" && s.inHome(prefix) && prefix != filepath.Join(s.home.name, ".local") {
		for _, part := range []string{"lib", "lib64", "libexec", "share"} {
			s.add(filepath.Join(prefix, part))
		}
	}
}

// maxLinkedPrograms bounds the entries of a directory on PATH that are looked at.
const maxLinkedPrograms = 500

// addLinked adds the programs in the home to which links in a directory on PATH lead.
func (s *toolSearch) addLinked(dir string) {
	if slices.ContainsFunc(s.tools, func(t string) bool { return guard.Contains(t, dir) }) {
		return // of one tool, such as the shims of a version manager
	}
	real := guard.ResolveOrEmpty(dir)
	if slices.ContainsFunc(s.writable, func(w string) bool { return guard.IsOrContains(w, real) }) {
		return // a command could link to anything
	}
	base := dir // of relative targets
	if inHome := s.home.rename(real); s.inHome(inHome) {
		base = inHome
	}
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	entries, _ := f.ReadDir(maxLinkedPrograms) // as many as can be read
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		link := filepath.Join(dir, e.Name())
		target, err := os.Readlink(link)
		if err != nil {
			continue
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(base, target)
		}
		target = s.home.rename(target)
		if s.inHome(target) && filepath.Base(filepath.Dir(target)) == "bin" {
			s.addPrograms(filepath.Dir(target))
		}
		if s.inHome(target) || s.inHome(s.home.rename(guard.ResolveOrEmpty(link))) {
			s.add(target) // not what it leads to: the planner checks the links on the way
		}
	}
}

// ForRunner shows the login of an agent in the private home of its sandbox. Grants for the logins of other agents, which
// one configuration has for all of them, do not count there; those in the record of the sandbox do.
func (p *Policy) ForRunner(name string) {
	logins := runner.Logins()
	own, known := logins[name]
	if !known || !p.privateHome {
		return
	}
	p.logins = joinAll(p.home, own)
	ofOther := func(path string) bool {
		if slices.ContainsFunc(p.grants, func(g grant) bool { return g.path == path && g.setting.Scope == allowScope }) {
			return false
		}
		for agent, names := range logins {
			for _, login := range joinAll(p.home, names) {
				if real := guard.ResolveOrEmpty(login); agent != name && real != "" && guard.IsOrContains(real, path) {
					return true
				}
			}
		}
		return false
	}
	for _, grants := range []*[]string{&p.Read, &p.Write, &p.OverlayWrite} {
		*grants = slices.DeleteFunc(*grants, ofOther)
	}
	p.privateFiles = slices.DeleteFunc(p.privateFiles, func(f string) bool { return ofOther(guard.ResolveOrEmpty(f)) })
}

// ForOtherRoot leaves out what belongs to the software of the machine, for commands with another root file system. What remains is
// the git that git-agency itself runs behind the walls, if it is in the home or in a temporary directory.
func (p *Policy) ForOtherRoot(env []string) {
	var programs []string
	if git, err := proc.LookPath(env, "git"); err == nil {
		programs = []string{filepath.Dir(git), filepath.Dir(guard.ResolveOrEmpty(git))}
	}
	tools, _ := findTools(env, p.home, p.Write)
	p.tools = slices.DeleteFunc(tools, func(tool string) bool {
		return !slices.ContainsFunc(programs, func(dir string) bool {
			return guard.IsOrContains(tool, dir) || filepath.Base(dir) == "bin" && filepath.Dir(tool) == filepath.Dir(dir)
		})
	})
	p.privateHome, p.toolRootCount, p.path = true, 0, programs
	p.Caches, p.Known, p.Omitted, p.ToolCaches = nil, nil, nil, nil
}

// toolSettings returns the files below a home with settings of tools, without which they would work in another way, and
// the filters that remove their secrets.
func (p Policy) toolSettings() map[string]toolconfig.Filter {
	filters := map[string]toolconfig.Filter{
		".config/git/ignore": toolconfig.Patterns, ".config/git/attributes": toolconfig.Patterns,
		".config/go/env": toolconfig.Variables(p.passes), ".cargo/env": toolconfig.PathScript, ".condarc": toolconfig.YAML,
		".asdfrc": toolconfig.Asdfrc, ".inputrc": toolconfig.Inputrc,
	}
	for _, name := range []string{".tool-versions", ".nvmrc", ".editorconfig", ".clang-format"} {
		filters[name] = toolconfig.Lines
	}
	for _, name := range []string{
		".cargo/config.toml", ".cargo/config", ".rustfmt.toml", ".config/rustfmt/rustfmt.toml", ".config/mise/config.toml", ".config/uv/uv.toml", ".bunfig.toml",
	} {
		filters[name] = toolconfig.TOML(p.passes)
	}
	return filters
}

// HomeFiles returns the files to copy into a private home, with names relative to it: settings of git and of tools
// without secrets, and the files that the user made private. Those that cannot be read are left out. target returns the path
// without symbolic links of a file that may be copied; empty if there is none. unparsable are the paths of settings that are
// left out because a filter does not understand them.
func (p Policy) HomeFiles(git GitConfigSecrets, target func(path string) string) (files []copies.File, unparsable []string) {
	if !p.privateHome || !filepath.IsAbs(p.home) {
		return nil, nil
	}
	add := func(path, original, text string, mode fs.FileMode) {
		name, err := filepath.Rel(p.home, path)
		if err == nil && filepath.IsLocal(name) && name != "." && !slices.ContainsFunc(files, func(f copies.File) bool { return f.Name == name }) {
			files = append(files, copies.File{Name: name, Original: original, Text: text, Mode: mode})
		}
	}
	for _, path := range p.privateFiles {
		if data, err := readNoSymlinks(target(path), copies.MaxSize); err == nil {
			add(path, string(data), string(data), 0o600)
		}
	}
	for _, f := range git.UserFiles {
		real := target(f.Path)
		data, err := readNoSymlinks(real, maxSettings)
		if err == nil && string(data) == f.Original && guard.Contains(p.home, f.Path) && !p.hides(f.Path, real) { // it may have been read elsewhere
			add(f.Path, f.Original, f.Text, 0)
		}
	}
	addFiltered := func(path string, filter toolconfig.Filter) {
		real := target(path)
		data, err := readNoSymlinks(real, maxSettings)
		if err != nil || !guard.Contains(p.home, path) || p.hides(path, real) {
			return
		}
		if text, ok := filter(string(data)); ok {
			add(path, string(data), text, 0)
		} else if !p.shows(real) {
			unparsable = append(unparsable, path)
		}
	}
	filters := p.toolSettings()
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		addFiltered(filepath.Join(p.home, name), filters[name])
	}
	for _, path := range git.NamedFiles {
		addFiltered(path, toolconfig.Patterns)
	}
	return files, unparsable
}

// maxSettings is the largest size of a file with settings of a tool.
const maxSettings = 1 << 20

// hides reports whether a file is hidden by the user or by default, given also its path without symbolic links.
func (p Policy) hides(path, real string) bool {
	return slices.ContainsFunc(slices.Concat(p.Hide, p.Secrets), func(hidden string) bool {
		return guard.IsOrContains(hidden, path) || guard.IsOrContains(hidden, real)
	})
}

// shows reports whether the user grants a file as it is, given its path without symbolic links.
func (p Policy) shows(real string) bool {
	return slices.ContainsFunc(slices.Concat(p.Read, p.Write, p.OverlayWrite), func(granted string) bool { return guard.IsOrContains(granted, real) })
}
