package gitagency

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// walledEnvironment says which variables a command behind walls gets. What nobody has thought of stays
// outside: that is where the secrets are.
type walledEnvironment struct {
	caller  []string // required: the environment that the tool was called with
	further []string // NAME=value of --env; they win over everything

	policy policy       // as for the plan
	plan   confine.Plan // required

	caches  string   // required: where caches are that can be nowhere else
	proxied []string // what tells programs of the proxy
}

// list is the environment, each variable once.
func (e walledEnvironment) list() []string {
	var env []string
	for _, kv := range git.Elsewhere(e.caller) {
		name, value, ok := strings.Cut(kv, "=")
		switch {
		case !ok || name == "":
			continue
		case slices.Contains(e.policy.env, name): // whoever names it knows what it holds
		case name == "PATH":
			kv = "PATH=" + e.path(value)
		case !e.passes(name):
			continue
		default:
			value, clean := withoutCredentials(value)
			if !clean || slices.Contains(proxyVariables, name) && strings.Contains(value, "@") { // which need no scheme
				continue
			}
			kv = name + "=" + value
		}
		env = append(env, kv)
	}
	env = append(env, "TMPDIR=/tmp")
	env = append(env, e.standIns()...)
	env = append(env, e.proxied...)
	return lastOnly(append(env, e.further...))
}

// passes knows the names that the user let pass, and those that do by themselves.
func (e walledEnvironment) passes(name string) bool {
	if slices.Contains(neverByPattern, name) {
		return false
	}
	for _, pattern := range e.policy.env {
		if begin, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasPrefix(name, begin) {
			return true
		}
	}
	if slices.Contains(proxyVariables, name) {
		return e.plan.Network == confine.HostNetwork // elsewhere the way leads nowhere
	}
	return passing()[name] || strings.HasPrefix(name, "LC_")
}

// path leaves out of PATH what cannot be seen, and goes around links that cannot: where programs are
// installed for one session, or system-wide by a link in /run, the link is private and what it leads to is
// not.
func (e walledEnvironment) path(value string) string {
	var dirs []string
	for _, dir := range filepath.SplitList(value) {
		if !filepath.IsAbs(dir) || e.plan.Sees(filepath.Clean(dir)) {
			dirs = append(dirs, dir)
		} else if real := resolved(dir); real != "" && e.plan.Sees(real) {
			dirs = append(dirs, real)
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

// standIns lead tools elsewhere that would want to create a cache where nothing can be created.
func (e walledEnvironment) standIns() []string {
	var env []string
	for _, s := range []struct{ variable, name string }{
		{"XDG_CACHE_HOME", ""},
		{"GOPATH", "go"},
		{"npm_config_cache", "npm"},
		{"CARGO_HOME", "cargo"},
		{"GRADLE_USER_HOME", "gradle"},
	} {
		usable := false
		for _, c := range e.policy.caches {
			if c.variable == s.variable && e.usable(c) {
				usable = true
			}
		}
		if !usable {
			env = append(env, s.variable+"="+filepath.Join(e.caches, s.name))
		}
	}
	return env
}

// usable: most tools make do with a cache that can be read; of the one that is everybody's no tool expects
// that, unless the user wants it so.
func (e walledEnvironment) usable(c cache) bool {
	if e.plan.Writes(c.path) {
		return true
	}
	return c.there && e.plan.Sees(c.path) && (c.variable != "XDG_CACHE_HOME" || slices.Contains(e.policy.Read, c.path))
}

var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"}

// neverByPattern lead to what is not there any more, or acts for the user. They pass by their own name only.
var neverByPattern = []string{
	"SSH_AUTH_SOCK", "SSH_AGENT_PID", "SSH_ASKPASS", "GIT_ASKPASS", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS",
	"GPG_AGENT_INFO", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DOCKER_HOST", "CONTAINER_HOST", "TMPDIR", "LD_PRELOAD", "LD_LIBRARY_PATH", "AGENCY_DATA_DIR",
}

// passing are the variables that pass by themselves: who and where one is, how to speak and look, and how
// tools are set up. No name of a secret is among them, nor what leads to the user's own programs and sockets.
// They are counted when they are needed: every command starts this program twice, and most need none of it.
var passing = sync.OnceValue(func() map[string]bool {
	return set(`
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

func set(words string) map[string]bool {
	known := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		known[word] = true
	}
	return known
}

var userInURL = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`://[^/?#\s@]*(@[^/?#\s@]*)*@`) })

// withoutCredentials removes who one is from the addresses in a value. It is not clean when there may be
// some left.
func withoutCredentials(value string) (string, bool) {
	if !strings.Contains(value, "://") {
		return value, true
	}
	value = userInURL().ReplaceAllString(value, "://")
	_, after, found := strings.Cut(value, "://")
	return value, !found || !strings.Contains(after, "@")
}

// lastOnly leaves every variable once: of one that is there twice some programs take the first, some the last.
func lastOnly(env []string) []string {
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
