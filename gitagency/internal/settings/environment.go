package settings

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/rootfs"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// WalledEnvironment computes the environment of a command behind walls. It is an allowlist, because an unknown
// variable may hold a secret.
type WalledEnvironment struct {
	CallerEnv []string // required: environment of the calling git-agency process
	ExtraEnv  []string // NAME=value pairs of --env; they override everything else

	Policy Policy     // same policy as in plan
	Plan   walls.Plan // required

	SoftwareEnv []string // variables of the image whose root file system the command has

	CacheDir string   // required: directory for the caches that cannot be used in their usual place
	ProxyEnv []string // variables that point programs to the proxy
}

// Variables returns the environment, each variable once.
func (e WalledEnvironment) Variables() []string {
	var env []string
	for _, kv := range git.WithoutRepoVariables(e.CallerEnv) {
		name, value, ok := strings.Cut(kv, "=")
		switch {
		case !ok || name == "":
			continue
		case slices.Contains(e.Policy.env, name): // listed by its exact name in agency.sandbox.env: passed unchanged, even with credentials
		case name == "PATH":
			kv = "PATH=" + e.visiblePath(value)
		case name == "HOME" && e.hasOtherRoot() && e.Plan.Home.Path != "":
			kv = "HOME=" + e.Plan.Home.Path // where it is mounted: the name may have symbolic links of the machine
		case !e.allows(name), e.hasOtherRoot() && e.namesMachine(value):
			continue
		default:
			value, clean := stripURLCredentials(value)
			if !clean || slices.Contains(proxyVariables, name) && strings.Contains(value, "@") { // proxy variables may have user@host without a scheme
				continue
			}
			kv = name + "=" + value
		}
		env = append(env, kv)
	}
	env = append(env, "TMPDIR=/tmp")
	if e.hasOtherRoot() {
		env = append(append(env, e.imageVariables()...), "SHELL=/bin/sh")
	}
	env = append(env, e.cacheOverrides()...)
	env = append(env, e.homeOverrides(env)...)
	env = append(env, e.ProxyEnv...)
	return DedupeEnv(append(env, e.ExtraEnv...))
}

// hasOtherRoot reports whether the command has another root file system than the machine.
func (e WalledEnvironment) hasOtherRoot() bool { return e.Plan.Software.Dir != "" }

// namesMachine reports whether a value names a file of the machine that is not there in another root file system, as JAVA_HOME
// does.
func (e WalledEnvironment) namesMachine(value string) bool {
	return slices.ContainsFunc(filepath.SplitList(value), func(path string) bool {
		return filepath.IsAbs(path) && !e.Plan.IsVisible(filepath.Clean(path)) && !e.inPrivateHome(path)
	})
}

// imageVariables returns the variables of the image, without those that say where and as which user a command runs, and those that
// agency.sandbox.env lets through.
func (e WalledEnvironment) imageVariables() []string {
	return slices.DeleteFunc(slices.Clone(e.SoftwareEnv), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains([]string{"PATH", "HOME", "USER", "LOGNAME", "PWD", "OLDPWD", "TMPDIR", "HOSTNAME"}, name) || strings.HasPrefix(name, "GIT_") || strings.HasPrefix(name, "AGENCY_") ||
			e.Policy.namesVariable(name) && isSet(e.CallerEnv, name)
	})
}

// isSet reports whether an environment has a variable, which may be empty.
func isSet(env []string, name string) bool {
	_, set := proc.LookupEnv(env, name)
	return set
}

// allows reports whether a variable passes the walls, by a pattern of agency.sandbox.env or by the built-in list.
func (e WalledEnvironment) allows(name string) bool {
	if slices.Contains(proxyVariables, name) && e.Plan.Network == walls.HostNetwork { // without the host's network the proxy is unreachable
		return true
	}
	return e.Policy.passes(name)
}

// passes reports whether a variable passes all walls, by agency.sandbox.env or by the built-in list.
func (p Policy) passes(name string) bool {
	if slices.Contains(p.env, name) {
		return true
	}
	if slices.Contains(exactNameOnly, name) {
		return false
	}
	return p.namesVariable(name) || allowedVariables()[name] || strings.HasPrefix(name, "LC_")
}

// namesVariable reports whether agency.sandbox.env has a variable, or a pattern of its name.
func (p Policy) namesVariable(name string) bool {
	return slices.ContainsFunc(p.env, func(pattern string) bool {
		begin, isPrefix := strings.CutSuffix(pattern, "*")
		return pattern == name || isPrefix && strings.HasPrefix(name, begin)
	})
}

// visiblePath drops the directories of PATH that are not visible behind the walls. A directory that is reached
// through a hidden symbolic link is replaced by its target if that is visible: programs installed for one session, or
// system-wide through a link in /run, have a hidden link and a visible target.
func (e WalledEnvironment) visiblePath(value string) string {
	if e.hasOtherRoot() {
		path := rootfs.PathOf(e.SoftwareEnv)
		if own := filepath.Dir(walls.ProgramInSoftware); !slices.Contains(filepath.SplitList(path), own) {
			path += string(filepath.ListSeparator) + own
		}
		return path
	}
	var dirs []string
	for _, dir := range filepath.SplitList(value) {
		if !filepath.IsAbs(dir) || e.Plan.IsVisible(filepath.Clean(dir)) || e.inPrivateHome(dir) {
			dirs = append(dirs, dir)
		} else if real := guard.ResolveOrEmpty(dir); real != "" && e.Plan.IsVisible(real) {
			dirs = append(dirs, real)
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

// inPrivateHome reports whether a path is in the private home, where a command of the sandbox may create it.
func (e WalledEnvironment) inPrivateHome(path string) bool {
	return e.Plan.Home.Path != "" && guard.Contains(e.Plan.Home.Path, path)
}

// homeOverrides returns variables that let tools install programs in the private home, and find them there. The prefix
// of an npm that belongs to the system is read-only.
func (e WalledEnvironment) homeOverrides(env []string) []string {
	home, path := proc.Getenv(env, "HOME"), proc.Getenv(env, "PATH")
	if e.Plan.Home.Path == "" || !filepath.IsAbs(home) {
		return nil
	}
	var added []string
	programs := filepath.Join(home, ".local", "bin")
	dirs := filepath.SplitList(path)
	if !slices.Contains(dirs, programs) {
		added = append(added, "PATH="+strings.Join(append(dirs, programs), string(filepath.ListSeparator)))
	}
	hasPrefix := proc.Getenv(env, "npm_config_prefix") != "" || proc.Getenv(env, "NPM_CONFIG_PREFIX") != ""
	if !hasPrefix && e.hasOtherRoot() { // its npm is read-only
		return append(added, "npm_config_prefix="+filepath.Dir(programs))
	}
	if !hasPrefix {
		for _, dir := range dirs {
			if _, err := os.Lstat(filepath.Join(dir, "npm")); err == nil {
				if !e.Plan.IsWritable(filepath.Clean(dir)) {
					added = append(added, "npm_config_prefix="+filepath.Dir(programs))
				}
				break
			}
		}
	}
	return added
}

// ReadOnlyFirst orders the directories of a PATH so that those which commands of a sandbox can change come last: what
// git-agency itself runs behind the walls is not what they put there.
func ReadOnlyFirst(path string, p walls.Plan) string {
	dirs := filepath.SplitList(path)
	slices.SortStableFunc(dirs, func(a, b string) int {
		return cmp.Compare(asNumber(p.IsWritable(filepath.Clean(a))), asNumber(p.IsWritable(filepath.Clean(b))))
	})
	return strings.Join(dirs, string(filepath.ListSeparator))
}

func asNumber(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// cacheOverrides returns variables that move tool caches into CacheDir where the usual cache cannot be created.
func (e WalledEnvironment) cacheOverrides() []string {
	var env []string
	for _, s := range []struct{ variable, name string }{
		{"XDG_CACHE_HOME", ""},
		{"GOPATH", "go"},
		{"npm_config_cache", "npm"},
		{"CARGO_HOME", "cargo"},
		{"GRADLE_USER_HOME", "gradle"},
	} {
		usable := false
		for _, c := range e.Policy.ToolCaches {
			if c.variable == s.variable && e.isUsableCache(c) {
				usable = true
			}
		}
		if !usable {
			env = append(env, s.variable+"="+filepath.Join(e.CacheDir, s.name))
		}
	}
	return env
}

// isUsableCache reports whether a tool can work with a cache where it is. A read-only cache is enough for most tools,
// but not for XDG_CACHE_HOME, which many tools expect to write to, nor for a part of it: a read-only one counts only if
// agency.sandbox.read names it, and a writable one only if no part of it is read-only.
func (e WalledEnvironment) isUsableCache(c ToolCache) bool {
	if e.Plan.IsWritable(c.path) {
		return c.variable != cacheHome || !slices.ContainsFunc(e.Plan.Kept, func(kept string) bool { return guard.Contains(c.path, kept) })
	}
	return c.exists && e.Plan.IsVisible(c.path) && (c.variable != cacheHome || slices.Contains(e.Policy.Read, c.path))
}

var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"}

// exactNameOnly lists variables that point to hidden sockets and files, or let programs act for the user. A pattern
// such as NAME_* never lets them pass, only their exact name.
var exactNameOnly = []string{
	"SSH_AUTH_SOCK", "SSH_AGENT_PID", "SSH_ASKPASS", "GIT_ASKPASS", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS",
	"GPG_AGENT_INFO", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DOCKER_HOST", "CONTAINER_HOST", "TMPDIR", "LD_PRELOAD", "LD_LIBRARY_PATH", "AGENCY_DATA_DIR",
}

// allowedVariables is the built-in list of variables that pass the walls: user, locale, terminal and tool
// configuration. It contains no name of a secret, and nothing that leads to the user's own programs and sockets. The
// set is built on first use: every command starts this program twice, and most runs do not need it.
var allowedVariables = sync.OnceValue(func() map[string]bool {
	return wordSet(`
	HOME USER LOGNAME SHELL LANG LANGUAGE TZ TZDIR
	TERM TERMINFO TERMINFO_DIRS COLORTERM COLUMNS LINES TERM_PROGRAM NO_COLOR CLICOLOR CLICOLOR_FORCE FORCE_COLOR LS_COLORS
	EDITOR VISUAL PAGER LESS LESSCHARSET MANPATH INFOPATH
	CI DEBIAN_FRONTEND SOURCE_DATE_EPOCH EMAIL
	XDG_CONFIG_HOME XDG_CACHE_HOME XDG_DATA_HOME XDG_STATE_HOME XDG_CONFIG_DIRS XDG_DATA_DIRS

	GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_AUTHOR_DATE GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_COMMITTER_DATE
	GIT_EDITOR GIT_SEQUENCE_EDITOR GIT_PAGER GIT_PAGER_IN_USE GIT_MERGE_AUTOEDIT GIT_TERMINAL_PROMPT GIT_OPTIONAL_LOCKS
	GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM GIT_CONFIG_NOSYSTEM GIT_ATTR_NOSYSTEM GIT_EXEC_PATH GIT_TEMPLATE_DIR
	GIT_SSL_CAINFO GIT_SSL_CAPATH GIT_DEFAULT_HASH GIT_DEFAULT_REF_FORMAT

	SSL_CERT_FILE SSL_CERT_DIR NIX_SSL_CERT_FILE CURL_CA_BUNDLE REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS PIP_CERT AWS_CA_BUNDLE
	CARGO_HTTP_CAINFO HTTPLIB2_CA_CERTS GRPC_DEFAULT_SSL_ROOTS_FILE_PATH

	GOPATH GOROOT GOBIN GOMODCACHE GOCACHE GOTMPDIR GOENV GOFLAGS GOPROXY GONOPROXY GOSUMDB GONOSUMDB GONOSUMCHECK GOPRIVATE GOINSECURE
	GOTOOLCHAIN GOWORK GO111MODULE GOOS GOARCH GOAMD64 GOARM GOARM64 GOEXPERIMENT GODEBUG GOMAXPROCS GOMEMLIMIT GOGC GOTELEMETRY GOVCS
	CGO_ENABLED CGO_CFLAGS CGO_CPPFLAGS CGO_CXXFLAGS CGO_LDFLAGS
	CC CXX CPP LD AR AS NM RANLIB STRIP OBJCOPY FC CFLAGS CXXFLAGS CPPFLAGS LDFLAGS MAKEFLAGS MAKE CMAKE_GENERATOR CMAKE_PREFIX_PATH
	CMAKE_BUILD_PARALLEL_LEVEL PKG_CONFIG_PATH PKG_CONFIG CCACHE_DIR SCCACHE_DIR CPATH LIBRARY_PATH
	NODE_PATH NODE_ENV NVM_DIR NVM_BIN NVM_INC VOLTA_HOME FNM_DIR N_PREFIX PNPM_HOME YARN_CACHE_FOLDER BUN_INSTALL BUN_INSTALL_CACHE_DIR DENO_DIR
	npm_config_cache NPM_CONFIG_CACHE npm_config_registry NPM_CONFIG_REGISTRY npm_config_prefix NPM_CONFIG_PREFIX COREPACK_HOME
	CARGO_HOME CARGO_TARGET_DIR CARGO_BUILD_JOBS CARGO_NET_OFFLINE CARGO_INCREMENTAL RUSTUP_HOME RUSTUP_TOOLCHAIN RUSTFLAGS RUST_BACKTRACE RUST_LOG
	JAVA_HOME JDK_HOME M2_HOME MAVEN_HOME MAVEN_OPTS GRADLE_HOME GRADLE_USER_HOME GRADLE_OPTS KOTLIN_HOME SCALA_HOME SBT_OPTS ANDROID_HOME ANDROID_SDK_ROOT
	PYTHONPATH PYTHONHOME PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONHASHSEED PYTHONIOENCODING PYTHONUTF8 PYTHONWARNINGS VIRTUAL_ENV
	CONDA_PREFIX CONDA_DEFAULT_ENV CONDA_EXE PYENV_ROOT PYENV_VERSION PIPX_HOME POETRY_HOME POETRY_CACHE_DIR
	PIP_CACHE_DIR PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_NO_INDEX PIP_DEFAULT_TIMEOUT PIP_DISABLE_PIP_VERSION_CHECK
	UV_CACHE_DIR UV_INDEX_URL UV_DEFAULT_INDEX UV_EXTRA_INDEX_URL UV_OFFLINE UV_PYTHON UV_LINK_MODE
	GEM_HOME GEM_PATH BUNDLE_PATH RBENV_ROOT RBENV_VERSION RUBYLIB RUBYOPT PERL5LIB PERL_LOCAL_LIB_ROOT COMPOSER_HOME COMPOSER_CACHE_DIR
	DOTNET_ROOT DOTNET_CLI_TELEMETRY_OPTOUT DOTNET_NOLOGO NUGET_PACKAGES PUB_CACHE FLUTTER_ROOT MIX_HOME HEX_HOME OPAMROOT GHCUP_INSTALL_BASE_PREFIX
	ASDF_DIR ASDF_DATA_DIR MISE_DATA_DIR SDKMAN_DIR HOMEBREW_PREFIX HOMEBREW_CELLAR NIX_PATH NIX_PROFILES HF_HOME
	OMP_NUM_THREADS MALLOC_ARENA_MAX
`)
})

func wordSet(words string) map[string]bool {
	known := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		known[word] = true
	}
	return known
}

var urlUserinfo = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`://[^/?#\s@]*(@[^/?#\s@]*)*@`) })

// stripURLCredentials removes the userinfo part from the URLs in a value, and reports whether the result is free of
// credentials.
func stripURLCredentials(value string) (string, bool) {
	if !strings.Contains(value, "://") {
		return value, true
	}
	value = urlUserinfo().ReplaceAllString(value, "://")
	_, after, found := strings.Cut(value, "://")
	return value, !found || !strings.Contains(after, "@")
}

// DedupeEnv keeps the last occurrence of every variable: given duplicates, some programs take the first and some the
// last.
func DedupeEnv(env []string) []string {
	last := map[string]int{}
	for i, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		last[name] = i
	}
	unique := make([]string, 0, len(last))
	for i, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); last[name] == i {
			unique = append(unique, kv)
		}
	}
	return unique
}
