package settings

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/outlet"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// newWalledEnvironment is an environment behind walls in which every cache is writable.
func newWalledEnvironment(caller ...string) WalledEnvironment {
	e := WalledEnvironment{CallerEnv: caller, CacheDir: "/tmp/.cache", Plan: walls.Plan{Network: walls.HostNetwork, Private: []string{"/tmp", "/run"}}}
	for _, t := range toolCaches {
		e.Policy.ToolCaches = append(e.Policy.ToolCaches, ToolCache{variable: t.variable, path: "/tmp/x"})
	}
	return e
}

func TestEnvironmentPassesOnlyKnownVariables(t *testing.T) {
	t.Parallel()
	pass := []string{
		"HOME=/home/me", "USER=me", "LOGNAME=me", "SHELL=/bin/sh", "TERM=xterm", "COLORTERM=truecolor", "LANG=C.UTF-8", "LANGUAGE=de", "LC_ALL=C", "LC_MESSAGES=C", "TZ=UTC",
		"EDITOR=vi", "VISUAL=vi", "PAGER=less", "NO_COLOR=1", "CLICOLOR=1", "FORCE_COLOR=1", "CI=true", "DEBIAN_FRONTEND=noninteractive",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_DATE=now", "GIT_EDITOR=ed", "GIT_SEQUENCE_EDITOR=ed", "GIT_PAGER=cat", "GIT_CONFIG_GLOBAL=/dev/null",
		"GOPATH=/go", "GOPROXY=https://proxy.example,direct", "GOFLAGS=-mod=mod", "CGO_ENABLED=0", "CC=gcc", "CFLAGS=-O2", "NODE_PATH=/n", "NVM_DIR=/nvm",
		"CARGO_HOME=/c", "RUSTUP_HOME=/r", "JAVA_HOME=/j", "PYTHONPATH=/p", "VIRTUAL_ENV=/v", "PYENV_ROOT=/e", "XDG_CONFIG_HOME=/x", "XDG_DATA_HOME=/d",
		"SSL_CERT_FILE=/etc/ssl/certs/ca.pem", "HTTPS_PROXY=http://proxy.example:3128", "PATH=/usr/bin:/bin",
	}
	stay := []string{
		"XDG_RUNTIME_DIR=/run/user/1", "SSH_AUTH_SOCK=/run/s", "SSH_AGENT_PID=1", "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/b", "GPG_AGENT_INFO=x", "GPG_TTY=/dev/pts/1",
		"DISPLAY=:0", "WAYLAND_DISPLAY=w", "XAUTHORITY=/x", "GITHUB_TOKEN=t", "GH_TOKEN=t", "NPM_TOKEN=t", "OPENAI_API_KEY=k", "CLIENT_SECRET=s", "AWS_ACCESS_KEY_ID=a", "AWS_PROFILE=p",
		"DATABASE_URL=postgres://u:p@h/d", "PGPASSWORD=x", "GIT_DIR=/elsewhere", "GIT_INDEX_FILE=/elsewhere", "GIT_CONFIG_COUNT=1", "GIT_SSH_COMMAND=ssh -i key", "GIT_ASKPASS=/x", "SSH_ASKPASS=/x",
		"DOCKER_HOST=unix:///run/d", "KUBECONFIG=/k", "LD_PRELOAD=/x.so", "AGENCY_DATA_DIR=/d", "TMPDIR=/elsewhere", "OLDPWD=/x", "PWD=/x", "_=/bin/env", "SUDO_USER=me", "TMUX=/tmp/t,1,0",
		"NODE_OPTIONS=--require=/x", "MALFORMED", "=x", "Path=/x",
	}
	got := newWalledEnvironment(append(slices.Clone(stay), pass...)...).Variables()
	slices.Sort(got)
	want := append(pass, "TMPDIR=/tmp")
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Guards future additions to the list: no allowed name looks like that of a secret.
func TestAllowedVariablesContainNoSecrets(t *testing.T) {
	t.Parallel()
	for name := range allowedVariables() {
		for _, part := range []string{"TOKEN", "SECRET", "PASS", "_KEY", "CRED", "AUTH_", "_SOCK", "DBUS", "GPG_", "DISPLAY", "COOKIE"} {
			if strings.Contains(strings.ToUpper(name), part) {
				t.Errorf("%s passes", name)
			}
		}
		if slices.Contains(exactNameOnly, name) {
			t.Errorf("%s is both allowed and in exactNameOnly", name)
		}
	}
}

func TestEnvironmentPassesVariablesOfPolicy(t *testing.T) {
	t.Parallel()
	e := newWalledEnvironment("ACME_URL=https://u:p@h", "ACME=1", "MY_TOKEN=t", "MY_TOKENS=t", "SSH_AUTH_SOCK=/s", "SSH_OTHER=o", "GOPROXY=https://u:p@h", "GIT_DIR=/x", "DISPLAY=:0")
	e.Policy.env = []string{"ACME_*", "MY_TOKEN", "SSH_*", "GOPROXY", "GIT_*", "DISPLAY"}
	want := []string{"ACME_URL=https://h", "MY_TOKEN=t", "SSH_OTHER=o", "GOPROXY=https://u:p@h", "DISPLAY=:0", "TMPDIR=/tmp"}
	if got := e.Variables(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestExtraEnvironmentOverrides(t *testing.T) {
	t.Parallel()
	e := newWalledEnvironment("HOME=/home/me", "LANG=C")
	e.Plan.Network, e.ProxyEnv = walls.ProxiedOnly, outlet.Environment("127.0.0.1:3128", outlet.Rules{})
	e.ExtraEnv = []string{"HOME=/h", "TMPDIR=/t", "HTTP_PROXY=http://other", "SECRET=s", "SECRET=t"}
	got := e.Variables()
	for name, want := range map[string]string{"HOME": "/h", "TMPDIR": "/t", "HTTP_PROXY": "http://other", "http_proxy": "http://127.0.0.1:3128", "SECRET": "t", "LANG": "C"} {
		if v := proc.Getenv(got, name); v != want {
			t.Errorf("%s=%s, want %s", name, v, want)
		}
	}
	once := map[string]bool{}
	for _, kv := range got {
		name, _, _ := strings.Cut(kv, "=")
		if once[name] {
			t.Errorf("%s is there twice", name)
		}
		once[name] = true
	}
}

func TestProxyVariablesFollowNetwork(t *testing.T) {
	t.Parallel()
	theirs := []string{"HTTP_PROXY=http://them", "no_proxy=x", "ALL_PROXY=user:pass@them:1080"}
	for network, want := range map[walls.Network]string{
		walls.HostNetwork: "HTTP_PROXY=http://them no_proxy=x",
		walls.NoNetwork:   "",
		walls.ProxiedOnly: "HTTP_PROXY=http://127.0.0.1:3128 http_proxy=http://127.0.0.1:3128 HTTPS_PROXY=http://127.0.0.1:3128 https_proxy=http://127.0.0.1:3128 " +
			"ALL_PROXY=socks5h://127.0.0.1:3128 all_proxy=socks5h://127.0.0.1:3128 NO_PROXY=localhost,127.0.0.1,::1 no_proxy=localhost,127.0.0.1,::1",
	} {
		e := newWalledEnvironment(theirs...)
		e.Plan.Network, e.ProxyEnv = network, nil
		if network == walls.ProxiedOnly {
			e.ProxyEnv = outlet.Environment("127.0.0.1:3128", outlet.Rules{})
		}
		got := slices.DeleteFunc(e.Variables(), func(kv string) bool { return kv == "TMPDIR=/tmp" })
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", network, got, want)
		}
	}
}

// TestEnvironmentOfOtherRoot passes nothing that names files of the machine, and sets the variables of the image.
func TestEnvironmentOfOtherRoot(t *testing.T) {
	t.Parallel()
	plan := walls.Plan{Home: walls.PrivateHome{Path: "/var/home/me", Dir: "/x"}, Software: walls.Software{Dir: "/img", Shown: []string{"/var/home/me", "/tmp"}}}
	env := WalledEnvironment{
		CallerEnv: []string{
			"HOME=/home/me", "PATH=/usr/local/go/bin:/bin", "SHELL=/usr/bin/zsh", "JAVA_HOME=/usr/lib/jvm", "PYTHONPATH=lib:/usr/lib/py", "EDITOR=vi", "GOFLAGS=-mod=mod",
			"XDG_CONFIG_HOME=/var/home/me/.config", "KEPT=/usr/kept",
		},
		Policy: Policy{env: []string{"KEPT", "LANG"}}, Plan: plan, CacheDir: "/caches",
		SoftwareEnv: []string{"PATH=/opt/bin:/bin", "LANG=C.UTF-8", "JAVA_HOME=/opt/java", "HOME=/root", "GIT_DIR=/evil", "AGENCY_SANDBOX=/evil", "GOPATH=/go", "LD_PRELOAD=/lib/x.so", "KEPT=/image"},
	}.Variables()
	for name, want := range map[string]string{
		"HOME": "/var/home/me", "PATH": "/opt/bin:/bin:/usr/local/bin:/var/home/me/.local/bin", "SHELL": "/bin/sh", "JAVA_HOME": "/opt/java", "PYTHONPATH": "", "EDITOR": "vi", "GOFLAGS": "-mod=mod",
		"XDG_CONFIG_HOME": "/var/home/me/.config", "KEPT": "/usr/kept", "LANG": "C.UTF-8", "GIT_DIR": "", "AGENCY_SANDBOX": "", "GOPATH": "/caches/go", "npm_config_prefix": "/var/home/me/.local", "LD_PRELOAD": "/lib/x.so",
	} {
		if got := proc.Getenv(env, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestStripURLCredentials(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"https://proxy.example":                   "https://proxy.example",
		"https://me:pw@proxy.example,direct":      "https://proxy.example,direct",
		"https://tok@a.example|https://b@b/x":     "https://a.example|https://b/x",
		"https://a,https://u:p@b":                 "https://a,https://b",
		"https://u:p,w@h/x":                       "https://h/x",
		"https://u:p@w@h/x":                       "https://h/x",
		"https://a.example https://u:p@b.example": "https://a.example https://b.example",
		"off":                      "off",
		"me@example.com":           "me@example.com",
		"https://u:p/w@h":          "", // ambiguous: the @ may belong to the path
		"https://u:p?w@h":          "",
		"https://a.example/x@v1.0": "",
	} {
		got, clean := stripURLCredentials(value)
		if !clean {
			got = ""
		}
		if got != want {
			t.Errorf("%s becomes %q, want %q", value, got, want)
		}
	}
}

func FuzzStripURLCredentials(f *testing.F) {
	f.Add("user", "pass", "host")
	f.Add("u", "p@w", "h/x,direct")
	f.Add("", "a,b", "h")
	f.Fuzz(func(t *testing.T, user, pass, rest string) {
		const secret = "5ecret"
		if got, clean := stripURLCredentials("https://" + user + ":" + pass + secret + "@" + rest); clean && strings.Contains(got, secret) && !strings.Contains(rest, secret) {
			t.Errorf("%q", got)
		}
	})
}

func TestPATHOmitsHiddenDirectories(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"store/bin", "run", "kept/bin", "hidden/bin"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(root, "store"), filepath.Join(root, "run", "system")); err != nil {
		t.Fatal(err)
	}
	e := newWalledEnvironment("PATH=" + strings.ReplaceAll("R/run/system/bin:R/store/bin/:R/hidden/bin:R/run/gone:R/kept/bin::rel:/none", "R", root))
	e.Plan.Private, e.Plan.Hidden = []string{root + "/run"}, []string{root + "/hidden"}
	want := strings.ReplaceAll("R/store/bin:R/store/bin/:R/kept/bin::rel:/none", "R", root)
	if got := proc.Getenv(e.Variables(), "PATH"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCacheVariablesPointToWritableDirectories(t *testing.T) {
	t.Parallel()
	layer := func(paths ...string) []walls.OverlayMount {
		var layers []walls.OverlayMount
		for _, p := range paths {
			layers = append(layers, walls.OverlayMount{Path: p})
		}
		return layers
	}
	caches := []ToolCache{
		{variable: "XDG_CACHE_HOME", path: "/h/.cache", exists: true},
		{variable: "GOPATH", path: "/h/go/pkg", exists: true},
		{variable: "npm_config_cache", path: "/h/.npm", exists: true},
		{variable: "CARGO_HOME", path: "/h/.cargo/registry", exists: true},
		{variable: "CARGO_HOME", path: "/h/.cargo/git", exists: false},
		{variable: "GRADLE_USER_HOME", path: "/h/.gradle", exists: true},
	}
	for name, c := range map[string]struct {
		change func(*WalledEnvironment)
		want   string
	}{
		"all have layers":          {func(*WalledEnvironment) {}, ""},
		"read-only caches suffice": {func(e *WalledEnvironment) { e.Plan.Overlays = layer("/h/.cache") }, ""},
		"but not a read-only ~/.cache": {
			func(e *WalledEnvironment) { e.Plan.Overlays = layer("/h/.npm") }, "XDG_CACHE_HOME=/tmp/.cache",
		},
		"unless policy allows reading it": {
			func(e *WalledEnvironment) { e.Plan.Overlays, e.Policy.Read = nil, []string{"/h/.cache"} }, "",
		},
		"missing caches": {
			func(e *WalledEnvironment) {
				e.Plan.Overlays = layer("/h/.npm", "/h/.gradle")
				e.Policy.ToolCaches = slices.Clone(caches)
				for i := range e.Policy.ToolCaches {
					e.Policy.ToolCaches[i].exists = false
				}
			},
			"XDG_CACHE_HOME=/tmp/.cache GOPATH=/tmp/.cache/go CARGO_HOME=/tmp/.cache/cargo",
		},
		"hidden cache": {
			func(e *WalledEnvironment) { e.Plan.Hidden, e.Plan.Overlays = []string{"/h/go"}, layer("/h/.cache") }, "GOPATH=/tmp/.cache/go",
		},
		"cache in a private directory": {
			func(e *WalledEnvironment) { e.Plan.Private, e.Plan.Overlays = []string{"/h"}, nil }, "",
		},
		"no home": {
			func(e *WalledEnvironment) { e.Policy.ToolCaches = nil },
			"XDG_CACHE_HOME=/tmp/.cache GOPATH=/tmp/.cache/go npm_config_cache=/tmp/.cache/npm CARGO_HOME=/tmp/.cache/cargo GRADLE_USER_HOME=/tmp/.cache/gradle",
		},
	} {
		e := newWalledEnvironment()
		e.Policy.ToolCaches = caches
		e.Plan.Overlays = layer("/h/.cache", "/h/go/pkg", "/h/.npm", "/h/.cargo/registry", "/h/.gradle")
		c.change(&e)
		got := slices.DeleteFunc(e.Variables(), func(kv string) bool { return kv == "TMPDIR=/tmp" })
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
