package settings

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// joinAll joins every name to dir; nil if dir is not absolute.
func joinAll(dir string, names []string) []string {
	if !filepath.IsAbs(dir) {
		return nil
	}
	found := make([]string, len(names))
	for i, name := range names {
		found[i] = filepath.Join(dir, name)
	}
	return found
}

// homeSecrets are the files and directories in a home that are hidden unless agency.sandbox.read names them: stored
// credentials, sockets of programs that act for the user, and histories. Files that an agent needs for its own login,
// such as .claude, are not hidden, nor are files that might hold a secret but mostly do not, such as pip.conf. From
// configuration files of git, secrets are removed.
var homeSecrets = []string{
	// keys
	".ssh", ".gnupg", ".pki", ".password-store", ".local/share/gopass", ".config/sops", ".config/age", ".putty",
	".local/share/keyrings", ".local/share/kwalletd", ".kde/share/apps/kwallet", ".config/keepassxc", ".keychain",
	".config/op", ".op", ".1password", ".config/1Password", ".config/Bitwarden", ".config/Bitwarden CLI", ".config/lastpass", ".lastpass",
	".vault-token", ".ethereum", ".bitcoin", ".electrum", ".config/solana", ".config/keybase", ".local/share/keybase",
	// git and its hosts
	".netrc", "_netrc", ".authinfo", ".authinfo.gpg", ".git-credentials", ".config/git/credentials", ".cache/git/credential",
	".git-credential-cache", ".config/gh", ".config/hub", ".config/glab-cli", ".config/tea", ".subversion/auth",
	// clouds
	".aws", ".azure", ".config/gcloud", ".boto", ".gsutil", ".s3cfg", ".oci", ".aliyun", ".bluemix", ".config/doctl", ".config/hcloud",
	".config/linode-cli", ".config/scw", ".config/rclone", ".config/configstore", ".config/heroku", ".fly", ".wrangler", ".config/.wrangler",
	".config/netlify", ".local/share/com.vercel.cli", ".config/stripe", ".config/ngrok", ".ngrok2", ".cloudflared",
	".databrickscfg", ".snowflake", ".terraformrc", ".terraform.d/credentials.tfrc.json", ".pulumi/credentials.json", ".chef", ".vagrant.d/insecure_private_key",
	".kube", ".minikube", ".config/helm/registry", ".config/argocd", ".huggingface", ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".kaggle",
	// containers, and the sockets through which they give control of the machine
	".docker/config.json", ".docker/contexts", ".docker/run", ".docker/desktop", ".config/containers/auth.json", ".colima", ".lima", ".orbstack", ".rd",
	".local/share/containers/podman",
	// package registries whose login writes into this very file
	".npmrc", ".yarnrc.yml", ".pypirc", ".gem/credentials", ".local/share/gem/credentials", ".bundle/config", ".cargo/credentials", ".cargo/credentials.toml",
	".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties", ".composer/auth.json", ".config/composer/auth.json", ".hex/hex.config",
	".config/pypoetry/auth.toml", ".local/share/uv/credentials", ".nuget/NuGet/NuGet.Config",
	".sbt/.credentials", ".sbt/credentials", ".ivy2/.credentials", ".conan2/credentials.json", ".pub-cache/credentials.json", ".config/dart/pub-credentials.json",
	// databases
	".pgpass", ".my.cnf", ".mylogin.cnf", ".smbcredentials",
	// histories
	".bash_history", ".zsh_history", ".zhistory", ".zsh_sessions", ".histfile", ".history", ".local/share/fish/fish_history", ".local/share/atuin",
	".python_history", ".node_repl_history", ".irb_history", ".psql_history", ".mysql_history", ".sqlite_history", ".rediscli_history",
	".mongo", ".lesshst", ".viminfo", ".local/state/nvim/shada",
	// browsers, mail and chat
	".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi", ".config/opera",
	".cache/mozilla", ".cache/thunderbird", ".cache/google-chrome", ".cache/chromium", ".cache/BraveSoftware", ".cache/microsoft-edge",
	"snap/firefox", "snap/chromium", ".var/app", ".config/evolution", ".local/share/evolution", ".config/Signal", ".config/Slack", ".config/discord",
	".muttrc", ".msmtprc", ".config/msmtp", ".fetchmailrc", ".purple",
	// display, terminals and editors that accept commands
	".Xauthority", ".ICEauthority", ".vnc", ".screen", ".emacs.d/server", ".config/emacs/server",
}

// systemSecrets are files that only root can read, hidden because root may run git-agency, and directories of daemons
// that do anything for their clients.
var systemSecrets = []string{
	"/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/krb5.keytab", "/etc/ssl/private", "/etc/letsencrypt", "/etc/wireguard",
	"/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_ecdsa_key", "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_dsa_key",
	"/etc/NetworkManager/system-connections", "/etc/kubernetes", "/etc/rancher", "/var/lib/kubelet", "/var/lib/rancher", "/var/lib/docker", "/var/lib/containerd",
	"/var/lib/incus", "/var/lib/lxd", "/var/snap/lxd", "/var/snap/docker", "/var/lib/systemd/coredump", "/var/spool/cron", "/var/mail", "/var/spool/mail",
}

// secretVariables are environment variables that name secret files and directories in unusual places.
var secretVariables = []struct{ name, within string }{
	{"GNUPGHOME", ""},
	{"NETRC", ""},
	{"AWS_SHARED_CREDENTIALS_FILE", ""},
	{"AWS_CONFIG_FILE", ""},
	{"AWS_WEB_IDENTITY_TOKEN_FILE", ""},
	{"GOOGLE_APPLICATION_CREDENTIALS", ""},
	{"CLOUDSDK_CONFIG", ""},
	{"AZURE_CONFIG_DIR", ""},
	{"KUBECONFIG", ""},
	{"DOCKER_CONFIG", "config.json"},
	{"DOCKER_CERT_PATH", ""},
	{"REGISTRY_AUTH_FILE", ""},
	{"GH_CONFIG_DIR", ""},
	{"PASSWORD_STORE_DIR", ""},
	{"PGPASSFILE", ""},
	{"NPM_CONFIG_USERCONFIG", ""},
	{"npm_config_userconfig", ""},
	{"CARGO_HOME", "credentials.toml"},
	{"CARGO_HOME", "credentials"},
	{"GRADLE_USER_HOME", "gradle.properties"},
	{"HF_HOME", "token"},
	{"HF_HOME", "stored_tokens"},
	{"PUB_CACHE", "credentials.json"},
	{"TF_CLI_CONFIG_FILE", ""},
	{"RCLONE_CONFIG", ""},
	{"SOPS_AGE_KEY_FILE", ""},
	{"VAULT_TOKEN_FILE", ""},
	{"KRB5_KTNAME", ""},
	{"HISTFILE", ""},
	{"XAUTHORITY", ""},
	{"ICEAUTHORITY", ""},
}

// secretPathsFromEnv returns the paths that secretVariables name, and those of homeSecrets that the XDG variables
// relocate.
func secretPathsFromEnv(env []string) []string {
	var found []string
	for _, v := range secretVariables {
		for _, path := range filepath.SplitList(proc.Getenv(env, v.name)) {
			if filepath.IsAbs(path) {
				found = append(found, filepath.Join(path, v.within))
			}
		}
	}
	for _, x := range []struct{ variable, usual string }{
		{"XDG_CONFIG_HOME", ".config/"},
		{"XDG_DATA_HOME", ".local/share/"},
		{"XDG_CACHE_HOME", ".cache/"},
		{"XDG_STATE_HOME", ".local/state/"},
	} {
		var names []string
		for _, name := range homeSecrets {
			if rest, usually := strings.CutPrefix(name, x.usual); usually {
				names = append(names, rest)
			}
		}
		found = append(found, joinAll(proc.Getenv(env, x.variable), names)...)
	}
	return found
}

// socketVariables are environment variables with the addresses of programs that act for the user.
var socketVariables = []string{
	"SSH_AUTH_SOCK", "GPG_AGENT_INFO", "GNOME_KEYRING_CONTROL", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "DBUS_STARTER_ADDRESS",
	"DOCKER_HOST", "CONTAINER_HOST", "CONTAINERD_ADDRESS", "LIBVIRT_DEFAULT_URI", "PULSE_SERVER", "PIPEWIRE_REMOTE", "WAYLAND_DISPLAY", "SWAYSOCK", "I3SOCK",
	"TMUX", "ZELLIJ_SOCKET_DIR", "SCREENDIR", "KITTY_LISTEN_ON", "WEZTERM_UNIX_SOCKET", "NVIM", "NVIM_LISTEN_ADDRESS", "VSCODE_IPC_HOOK_CLI", "VSCODE_GIT_IPC_HANDLE", "AT_SPI_BUS_ADDRESS",
}

// findAgentSockets extracts the paths from the values of socketVariables: /path, unix:path=/path,guid=…,
// unix:///path, /path:pid:1.
func findAgentSockets(env []string) []string {
	var found []string
	for _, name := range socketVariables {
		for word := range strings.FieldsFuncSeq(proc.Getenv(env, name), func(c rune) bool { return strings.ContainsRune(",;:=", c) }) {
			if strings.HasPrefix(word, "/") {
				found = append(found, filepath.Clean(word))
			}
		}
	}
	return found
}

// toolCaches lists where tools keep their caches: below the directory that a variable names, else below the home. An
// entry without a variable is always below the home.
var toolCaches = []struct {
	variable, home string   // base directory of the tool: its variable, and its default in the home
	caches         []string // cache directories below the base; nil is the base itself
}{
	{"XDG_CACHE_HOME", ".cache", nil},
	{"GOPATH", "go", []string{"pkg"}},
	{"GOMODCACHE", "", nil},
	{"GOCACHE", "", nil},
	{"npm_config_cache", ".npm", nil},
	{"NPM_CONFIG_CACHE", "", nil},
	{"CARGO_HOME", ".cargo", []string{"registry", "git"}},
	{"GRADLE_USER_HOME", ".gradle", nil},
	{"PIP_CACHE_DIR", "", nil},
	{"UV_CACHE_DIR", "", nil},
	{"POETRY_CACHE_DIR", "", nil},
	{"YARN_CACHE_FOLDER", "", nil},
	{"BUN_INSTALL_CACHE_DIR", ".bun/install/cache", nil},
	{"DENO_DIR", "", nil},
	{"NUGET_PACKAGES", ".nuget/packages", nil},
	{"COMPOSER_CACHE_DIR", ".composer/cache", nil},
	{"PUB_CACHE", ".pub-cache", nil},
	{"CCACHE_DIR", ".ccache", nil},
	{"SCCACHE_DIR", "", nil},
	{"HF_HOME", "", nil},
	{"", ".m2/repository", nil},
	{"", ".ivy2", nil},
	{"", ".sbt", nil},
	{"", ".yarn", nil},
	{"", ".local/share/pnpm", nil},
	{"", ".local/state/pnpm", nil},
	{"", ".local/share/uv", nil},
	{"", ".cabal/packages", nil},
	{"", ".hex", nil},
	{"", ".node-gyp", nil},
	{"", ".conan2", nil},
}

// findCaches returns the caches of toolCaches, also those that do not exist.
func findCaches(env []string) []ToolCache {
	var found []ToolCache
	home := proc.Getenv(env, "HOME")
	if filepath.IsAbs(home) {
		home = cmp.Or(guard.ResolveOrEmpty(home), home)
	}
	for _, t := range toolCaches {
		var dirs []string
		if t.variable != "" {
			dirs = filepath.SplitList(proc.Getenv(env, t.variable)) // GOPATH may list several
		}
		if len(dirs) == 0 && t.home != "" {
			dirs = joinAll(home, []string{t.home})
		}
		for _, dir := range dirs {
			if !filepath.IsAbs(dir) {
				continue
			}
			parts := t.caches
			if parts == nil {
				parts = []string{""}
			}
			for _, part := range parts {
				c := ToolCache{variable: t.variable, named: filepath.Join(dir, part), path: filepath.Join(dir, part)}
				if _, err := os.Stat(c.path); err == nil {
					c.path, c.exists = guard.ResolveOrEmpty(c.path), true
				}
				found = append(found, c)
			}
		}
	}
	return found
}
