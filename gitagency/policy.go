package gitagency

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
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

func below(dir string, names []string) []string {
	if !filepath.IsAbs(dir) {
		return nil
	}
	found := make([]string, len(names))
	for i, name := range names {
		found[i] = filepath.Join(dir, name)
	}
	return found
}

// secretFiles are the files and directories in a home that are hidden unless agency.sandbox.read names
// them: where logins leave what they were told, where agents of the user listen, what was typed. What an
// agent needs to log in itself, such as .claude, is not among them, and neither is what merely might hold a
// secret and mostly does not, such as .gitconfig and pip.conf.
var secretFiles = []string{
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
	// containers, and the sockets through which they give away the machine
	".docker/config.json", ".docker/contexts", ".docker/run", ".docker/desktop", ".config/containers/auth.json", ".colima", ".lima", ".orbstack", ".rd",
	".local/share/containers/podman",
	// package registries, where a login writes into this very file
	".npmrc", ".yarnrc.yml", ".pypirc", ".gem/credentials", ".local/share/gem/credentials", ".bundle/config", ".cargo/credentials", ".cargo/credentials.toml",
	".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties", ".composer/auth.json", ".config/composer/auth.json", ".hex/hex.config",
	".config/pypoetry/auth.toml", ".local/share/uv/credentials", ".nuget/NuGet/NuGet.Config",
	// databases
	".pgpass", ".my.cnf", ".mylogin.cnf", ".smbcredentials",
	// what was typed
	".bash_history", ".zsh_history", ".zhistory", ".zsh_sessions", ".histfile", ".history", ".local/share/fish/fish_history", ".local/share/atuin",
	".python_history", ".node_repl_history", ".irb_history", ".psql_history", ".mysql_history", ".sqlite_history", ".rediscli_history",
	".mongo", ".lesshst", ".viminfo", ".local/state/nvim/shada",
	// browsers, mail and chat
	".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi", ".config/opera",
	".cache/mozilla", ".cache/thunderbird", ".cache/google-chrome", ".cache/chromium", ".cache/BraveSoftware", ".cache/microsoft-edge",
	"snap/firefox", "snap/chromium", ".var/app", ".config/evolution", ".local/share/evolution", ".config/Signal", ".config/Slack", ".config/discord",
	".muttrc", ".msmtprc", ".config/msmtp", ".fetchmailrc", ".purple",
	// the display, terminals and editors that take commands
	".Xauthority", ".ICEauthority", ".vnc", ".screen", ".emacs.d/server", ".config/emacs/server",
}

// systemSecrets are readable to root alone, which is who calls us sometimes, or lead to a daemon that does
// anything for those it listens to.
var systemSecrets = []string{
	"/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/krb5.keytab", "/etc/ssl/private", "/etc/letsencrypt", "/etc/wireguard",
	"/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_ecdsa_key", "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_dsa_key",
	"/etc/NetworkManager/system-connections", "/etc/kubernetes", "/etc/rancher", "/var/lib/kubelet", "/var/lib/rancher", "/var/lib/docker", "/var/lib/containerd",
	"/var/lib/incus", "/var/lib/lxd", "/var/snap/lxd", "/var/snap/docker", "/var/lib/systemd/coredump", "/var/spool/cron", "/var/mail", "/var/spool/mail",
}

// secretVariables name files and directories of secrets that are elsewhere than usual.
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
	{"TF_CLI_CONFIG_FILE", ""},
	{"RCLONE_CONFIG", ""},
	{"SOPS_AGE_KEY_FILE", ""},
	{"VAULT_TOKEN_FILE", ""},
	{"KRB5_KTNAME", ""},
	{"HISTFILE", ""},
	{"XAUTHORITY", ""},
	{"ICEAUTHORITY", ""},
}

// secretsNamed finds the secrets that variables lead to, and those of .config that are elsewhere.
func secretsNamed(env []string) []string {
	var found []string
	for _, v := range secretVariables {
		for _, path := range filepath.SplitList(proc.Variable(env, v.name)) {
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
		for _, name := range secretFiles {
			if rest, usually := strings.CutPrefix(name, x.usual); usually {
				names = append(names, rest)
			}
		}
		found = append(found, below(proc.Variable(env, x.variable), names)...)
	}
	return found
}

// socketVariables tell programs where those listen who act for the user.
var socketVariables = []string{
	"SSH_AUTH_SOCK", "GPG_AGENT_INFO", "GNOME_KEYRING_CONTROL", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "DBUS_STARTER_ADDRESS",
	"DOCKER_HOST", "CONTAINER_HOST", "CONTAINERD_ADDRESS", "LIBVIRT_DEFAULT_URI", "PULSE_SERVER", "PIPEWIRE_REMOTE", "WAYLAND_DISPLAY", "SWAYSOCK", "I3SOCK",
	"TMUX", "ZELLIJ_SOCKET_DIR", "SCREENDIR", "KITTY_LISTEN_ON", "WEZTERM_UNIX_SOCKET", "NVIM", "NVIM_LISTEN_ADDRESS", "VSCODE_IPC_HOOK_CLI", "VSCODE_GIT_IPC_HANDLE", "AT_SPI_BUS_ADDRESS",
}

// agentSockets finds the paths in what socketVariables say: /path, unix:path=/path,guid=…, unix:///path, /path:pid:1.
func agentSockets(env []string) []string {
	var found []string
	for _, name := range socketVariables {
		for word := range strings.FieldsFuncSeq(proc.Variable(env, name), func(c rune) bool { return strings.ContainsRune(",;:=", c) }) {
			if strings.HasPrefix(word, "/") {
				found = append(found, filepath.Clean(word))
			}
		}
	}
	return found
}

// toolCaches says where tools keep things for the next time: below what a variable says, else below the
// home. Without a variable it is always there.
var toolCaches = []struct {
	variable, home string   // of the tool
	caches         []string // below that; empty is all of it
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

// findCaches says where the caches are, whether or not they are there.
func findCaches(env []string) []cache {
	var found []cache
	home := proc.Variable(env, "HOME")
	if filepath.IsAbs(home) {
		home = cmp.Or(resolved(home), home)
	}
	for _, t := range toolCaches {
		var dirs []string
		if t.variable != "" {
			dirs = filepath.SplitList(proc.Variable(env, t.variable)) // GOPATH may be several
		}
		if len(dirs) == 0 && t.home != "" {
			dirs = below(home, []string{t.home})
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
				c := cache{variable: t.variable, path: filepath.Join(dir, part)}
				if _, err := os.Stat(c.path); err == nil {
					c.path, c.there = resolved(c.path), true
				}
				found = append(found, c)
			}
		}
	}
	return found
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
