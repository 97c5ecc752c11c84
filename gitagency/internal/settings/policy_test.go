package settings

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// makeHome makes a home directory with directories ("name/"), files ("name") and symlinks ("name -> target").
func makeHome(t *testing.T, names ...string) (home string, env []string) {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		link, target, isLink := strings.Cut(name, " -> ")
		path := filepath.Join(home, link)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case isLink:
			err = os.Symlink(target, path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		default:
			err = os.WriteFile(path, nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return home, []string{"HOME=" + home, "PATH=/usr/bin:/bin"}
}

// makeSettings makes global settings from alternating keys and values.
func makeSettings(words ...string) config.Settings {
	cfg := config.Settings{}
	for i := 0; i < len(words); i += 2 {
		key := CanonicalKey(words[i])
		cfg[key] = append(cfg[key], config.Setting{Value: words[i+1], Scope: "global", Origin: "file:conf"})
	}
	return cfg
}

func TestReadPolicyMergesValues(t *testing.T) {
	t.Parallel()
	home, env := makeHome(t, "a/", "b/", "c/", "link -> a", "deep/file")
	config := makeSettings(
		"agency.sandbox.read", "~/a", "agency.sandbox.read", home+"/deep/file", "agency.sandbox.read", "~/gone",
		"agency.sandbox.write", "~/b/", "agency.sandbox.write", "private:~/c", "agency.sandbox.write", "private:~/link",
		"agency.sandbox.hide", "~/forgotten", "agency.sandbox.hide", "", "agency.sandbox.hide", "~/deep/../b",
		"agency.sandbox.env", "MY_TOKEN", "agency.sandbox.env", "ACME_*",
	)
	p, err := readPolicy(config, env, nil, store.Grants{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ got, want []string }{
		"read":    {p.Read, []string{home + "/a", home + "/deep/file"}},
		"write":   {p.Write, []string{home + "/b"}},
		"private": {p.OverlayWrite, []string{home + "/c", home + "/a"}},
		"hide":    {p.Hide, []string{home + "/b"}},
		"env":     {p.env, []string{"MY_TOKEN", "ACME_*"}},
		"path":    {p.path, []string{"/usr/bin", "/bin"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s is %q, want %q", name, c.got, c.want)
		}
	}
}

func TestReadPolicySkipsMissingPaths(t *testing.T) {
	t.Parallel()
	home, env := makeHome(t, "here/", "dangling -> gone")
	p, err := readPolicy(makeSettings(
		WriteKey, "~/gone", WriteKey, "~/here", WriteKey, "private:~/begins-empty", WriteKey, "private:/gone", ReadKey, "~/dangling", hideKey, "~/here/gone",
	), env, nil, store.Grants{})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Read)+len(p.OverlayWrite)+len(p.Hide) > 0 || !slices.Equal(p.Write, []string{home + "/here"}) {
		t.Errorf("got read %q, write %q and %q, hide %q", p.Read, p.Write, p.OverlayWrite, p.Hide)
	}
	var skipped []string
	for _, s := range p.Skipped {
		skipped = append(skipped, s.Error())
	}
	const why = "(file:conf): there is no such file or directory"
	want := []string{
		`agency.sandbox.read = "~/dangling" ` + why, `agency.sandbox.hide = "~/here/gone" ` + why,
		`agency.sandbox.write = "~/gone" ` + why, `agency.sandbox.write = "private:/gone" ` + why,
	}
	if !slices.Equal(skipped, want) {
		t.Errorf("skipped %q, want %q", skipped, want)
	}
}

// A value in the record of a sandbox is named by the flag that recorded it, and not by a key of the configuration.
func TestReadPolicyNamesTheFlagOfAllowedValues(t *testing.T) {
	t.Parallel()
	home, env := makeHome(t, "there/", "link -> there")
	_, err := readPolicy(config.Settings{}, env, nil, store.Grants{Write: []string{home + "/link"}})
	var invalid *fault.InvalidError
	if !errors.As(err, &invalid) || invalid.AllowFlag != "--write" || invalid.ConfigKey != "" || !strings.HasPrefix(err.Error(), "invalid --write (git agency allow) ") {
		t.Errorf("got %v", err)
	}
	p, err := readPolicy(config.Settings{}, env, nil, store.Grants{Read: []string{home + "/gone"}})
	if err != nil || len(p.Skipped) != 1 || p.Skipped[0].Setting.Key != "--read" {
		t.Errorf("got %v, %v", p.Skipped, err)
	}
}

func TestReadPolicyRefusesInvalidValues(t *testing.T) {
	t.Parallel()
	_, env := makeHome(t)
	for name, c := range map[string]struct {
		config []string
		want   string
	}{
		"a relative path to read":  {[]string{ReadKey, "a"}, `invalid agency.sandbox.read (file:conf) "a": want an absolute path, or one that begins with ~/`},
		"a relative path to hide":  {[]string{hideKey, "./a"}, `invalid agency.sandbox.hide (file:conf) "./a"`},
		"a relative path to write": {[]string{WriteKey, "../a"}, `invalid agency.sandbox.write (file:conf) "../a": want an absolute path, or one that begins with ~/; with the prefix private:`},
		"a relative private path":  {[]string{WriteKey, "private:a"}, `"private:a": want an absolute path`},
		"private without a path":   {[]string{WriteKey, "private:"}, `"private:": want an absolute path`},
		"private to read":          {[]string{ReadKey, "private:/tmp"}, `"private:/tmp": want an absolute path`},
		"home of an unknown user":  {[]string{ReadKey, "~nobody-of-that-name/x"}, "want an absolute path"},
		"a key without a value":    {[]string{WriteKey, "true"}, "want an absolute path"},
		"to write with a wildcard": {[]string{WriteKey, "~/gone*"}, `"~/gone*": want a path without wildcards`},
		"every variable":           {[]string{PassedVariablesKey, "*"}, `invalid agency.sandbox.env (file:conf) "*": want the name of a variable`},
		"a variable with a value":  {[]string{PassedVariablesKey, "A=b"}, `"A=b": want the name of a variable`},
		"a star in the middle":     {[]string{PassedVariablesKey, "A*B"}, "want the name of a variable"},
	} {
		_, err := readPolicy(makeSettings(c.config...), env, nil, store.Grants{})
		var invalid *fault.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func TestPolicySecretsFollowHomesAndVariables(t *testing.T) {
	t.Parallel()
	home, env := makeHome(t)
	env = append(env, "XDG_CONFIG_HOME=/conf", "GNUPGHOME=/keys", "KUBECONFIG=/k1:/k2:rel", "DOCKER_CONFIG=/dock", "CARGO_HOME=/cargo", "XDG_CACHE_HOME=relative")
	p, err := readPolicy(config.Settings{}, env, []string{"/root", "", "relative"}, store.Grants{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		home + "/.ssh", home + "/.aws", home + "/.gnupg", home + "/.netrc", home + "/.git-credentials", home + "/.config/git/credentials",
		home + "/.config/gcloud", home + "/.azure", home + "/.kube", home + "/.docker/config.json", home + "/.docker/run", home + "/.config/gh", home + "/.config/hub",
		home + "/.config/op", home + "/.password-store", home + "/.npmrc", home + "/.pypirc", home + "/.cargo/credentials", home + "/.cargo/credentials.toml",
		home + "/.terraform.d/credentials.tfrc.json", home + "/.config/rclone", home + "/.mozilla", home + "/.config/google-chrome", home + "/.local/share/keyrings",
		home + "/.bash_history", home + "/.zsh_history", home + "/.python_history", home + "/.node_repl_history", home + "/.psql_history", home + "/.vault-token",
		home + "/.config/containers/auth.json", "/root/.ssh", "/root/.aws", "/etc/shadow",
		"/conf/gh", "/conf/git/credentials", "/keys", "/k1", "/k2", "/dock/config.json", "/cargo/credentials.toml",
	} {
		if !slices.Contains(p.Secrets, want) {
			t.Errorf("%s is not hidden", want)
		}
	}
	for _, path := range p.Secrets {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path {
			t.Errorf("secret %q", path)
		}
	}
	for _, seen := range []string{home + "/.gitconfig", home + "/.config/git/config", home + "/.claude", home + "/.bashrc", home, "/dock", "/cargo"} {
		if slices.Contains(p.Secrets, seen) {
			t.Errorf("%s is hidden", seen)
		}
	}
}

func TestFindAgentSockets(t *testing.T) {
	t.Parallel()
	got := findAgentSockets([]string{
		"SSH_AUTH_SOCK=/a/agent.1", "GPG_AGENT_INFO=/b/S.gpg-agent:123:1", "DBUS_SESSION_BUS_ADDRESS=unix:path=/c/bus,guid=0f;unix:abstract=/d/x",
		"DOCKER_HOST=unix:///e/docker.sock", "TMUX=/f/tmux-0/default,12,0", "DISPLAY=:0", "WAYLAND_DISPLAY=wayland-0", "CONTAINER_HOST=tcp://h:1",
	})
	for i, want := range []string{"/a/agent.1", "/b/S.gpg-agent", "/c/bus", "/d/x", "/e/docker.sock"} {
		if i >= len(got) || got[i] != want {
			t.Fatalf("got %q, want %s next", got, want)
		}
	}
	if !slices.Contains(got, "/f/tmux-0/default") {
		t.Errorf("%q", got)
	}
}

func TestPolicyCachesFollowVariables(t *testing.T) {
	t.Parallel()
	home, env := makeHome(t, "real/npm/", ".npm -> real/npm", ".cache/go-build/", ".cache/mozilla/", ".cache/huggingface/token", ".cargo/registry/")
	env = append(env, "GOPATH=/go1:/go2", "GOMODCACHE=/mod", "UV_CACHE_DIR=rel")
	p, err := readPolicy(config.Settings{}, env, nil, store.Grants{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{home + "/.cache", home + "/.npm", home + "/.cargo/registry", home + "/.cargo/git", "/go1/pkg", "/go2/pkg", "/mod", home + "/.m2/repository"} {
		if !slices.Contains(p.Caches, want) {
			t.Errorf("%s is not among the caches %q", want, p.Caches)
		}
	}
	if slices.Contains(p.Caches, home+"/go/pkg") {
		t.Error("the default GOPATH is a cache although GOPATH is set")
	}
}

// Of ~/.cache, a private home has the directories of known tools and those that the user grants.
func TestPolicyOmitsUnknownCaches(t *testing.T) {
	t.Parallel()
	home, env := makeHome(t, ".cache/go-build/", ".cache/mozilla/", ".cache/own/part/", ".cache/huggingface/token")
	for _, c := range []struct{ key, value, want string }{
		{homeKey, homePrivate, "mozilla own"},
		{WriteKey, "private:~/.cache/own", "mozilla"},
		{ReadKey, "~/.cache/own/part", "mozilla"},
		{ReadKey, "~/.cache", ""},
		{homeKey, homeReadOnly, ""},
	} {
		p, err := readPolicy(makeSettings(c.key, c.value), env, nil, store.Grants{})
		if err != nil {
			t.Fatal(err)
		}
		omitted := p.Omitted[home+"/.cache"]
		slices.Sort(omitted)
		if got := strings.Join(omitted, " "); got != c.want {
			t.Errorf("with %s = %s omitted are %q, want %q", c.key, c.value, got, c.want)
		}
	}
}

// A name that is not listed would not be omitted.
func TestPolicyNeedsTheListOfCaches(t *testing.T) {
	t.Parallel()
	home, env := makeHome(t, ".cache/mozilla/")
	dir := filepath.Join(home, ".cache")
	if err := os.Chmod(dir, 0o300); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = os.Chmod(dir, 0o700), os.Chmod(dir+".old", 0o700) })
	if f, err := os.Open(dir); err == nil {
		_ = f.Close()
		t.Skip("this user can list every directory")
	}
	if _, err := readPolicy(config.Settings{}, env, nil, store.Grants{}); !errors.Is(err, fs.ErrPermission) || !strings.HasPrefix(err.Error(), "list the caches in "+dir+": ") {
		t.Errorf("an unreadable directory of caches: %v", err)
	}
	if _, err := readPolicy(makeSettings(homeKey, homeReadOnly), env, nil, store.Grants{}); err != nil {
		t.Errorf("without a private home: %v", err)
	}
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if _, err := readPolicy(config.Settings{}, env, nil, store.Grants{}); err != nil {
		t.Errorf("a missing directory: %v", err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readPolicy(config.Settings{}, env, nil, store.Grants{}); err != nil {
		t.Errorf("a file in its place: %v", err)
	}
}

func TestSettingsListEveryPolicyValue(t *testing.T) {
	t.Parallel()
	home, env := makeHome(t, "repo/")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(home, "conf"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("[agency \"sandbox\"]\n\tread = ~/gone\n\tread =\n\tread = /a\n\tread = b\n\twrite = private:c\n\tenv = A*B\n\tenv = OK_*\n")
	env = append(env, "PATH="+os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+filepath.Join(home, "conf"))
	settings, err := List(t.Context(), home, env)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range settings {
		if strings.HasPrefix(s.Key, "agency.sandbox.") {
			got = append(got, s.Key+"="+s.Value+" "+s.Problem)
		}
	}
	want := []string{
		"agency.sandbox.read=/a ", "agency.sandbox.read=b want " + wantPath, "agency.sandbox.write=private:c want " + wantGrant,
		"agency.sandbox.hide=credentials, histories, sockets ", "agency.sandbox.home=private ", "agency.sandbox.env=A*B want " + wantVariable, "agency.sandbox.env=OK_* ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Makes a plan for a home directory on the real file system; the tests of confine use a fake one.
func TestPolicyPlanOnRealHome(t *testing.T) {
	t.Parallel()
	home, env := makeHome(t, ".ssh/id", ".npmrc", ".cache/x", "keys/", ".aws -> keys", ".bash_history -> /dev/null",
		"data/sandboxes/s/tree/.git", "data/sandboxes/s/walls/", "repo/.git/", "shared/", "h -> .")
	machine := confine.InspectMachine()
	if machine.System != "linux" {
		t.Skip("skipped: walls need Linux")
	}
	machine.Arch, machine.LandlockABI, machine.WhyNoSeccomp = "amd64", 6, "" // independent of this kernel
	p, err := readPolicy(makeSettings(WriteKey, "~/h/shared", ReadKey, "~/.npmrc", homeKey, homeReadOnly), env, nil, store.Grants{})
	if err != nil {
		t.Fatal(err)
	}
	req := walls.Request{
		Tree: home + "/data/sandboxes/s/tree", GitFile: home + "/data/sandboxes/s/tree/.git", OverlayDir: home + "/data/sandboxes/s/walls",
		DataDir: home + "/data", GitDir: home + "/repo/.git", IntegrationTrees: []string{home + "/repo"}, Outputs: "none",
	}
	p.FillRequest(&req)
	plan, err := walls.MakePlan(req, machine)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]walls.Visibility{
		"data": walls.Hidden, "data/sandboxes/s/tree/file": walls.Writable, "repo/.git/HEAD": walls.Overlaid, ".ssh/id": walls.Hidden,
		"keys": walls.Hidden, ".cache/x": walls.Overlaid, "shared": walls.Writable,
	} {
		if got := plan.VisibilityOf(filepath.Join(home, name)); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if !plan.IsVisible(home+"/.npmrc") || !plan.IsVisible(home+"/repo/file") || plan.IsWritable(home+"/repo/file") || plan.IsWritable(home) {
		t.Errorf("%+v", plan)
	}
	if slices.Contains(plan.Hidden, "/dev/null") {
		t.Error("/dev/null is hidden")
	}
	req.Policy.Write = []string{home + "/repo"}
	if _, err := walls.MakePlan(req, machine); !fault.Is[*walls.RefusedError](err) {
		t.Errorf("a policy that makes the repository writable: %v", err)
	}
}

func TestReadPolicyRefusesWritesToMarkedTrees(t *testing.T) {
	t.Parallel()
	home, env := makeHome(t, "a/.agency/INTEGRATION_MARKER", "a/src/", "b/.agency/SANDBOX_MARKER", "c/")
	for path, refused := range map[string]bool{"a": true, "a/src": true, "b": true, "c": false} {
		for _, value := range []string{"~/" + path, "private:~/" + path} {
			_, err := readPolicy(makeSettings(WriteKey, value), env, nil, store.Grants{})
			if fault.Is[*fault.InvalidError](err) != refused {
				t.Errorf("%s: %v", value, err)
			}
			if refused && !strings.Contains(err.Error(), "outside of "+home+"/"+path[:1]) {
				t.Error(err)
			}
		}
	}
}
