package walls

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// privateRequest is usualRequest with a private home.
func privateRequest() Request {
	r := usualRequest()
	r.PrivateHome = true
	return r
}

const privatePlan = `hidden /home/me/project
hidden DATA
layered /home/me/.cache
layered /home/me/.npm
layered /home/me/go/pkg
layered /home/me/project/.git
private /home/me
private /run
private /tmp
private /var/tmp
read-only BOX/tree/.git
writable BOX/tree`

// TestMakePlanWithPrivateHome lists for each case the lines added to privatePlan, after "+", and those removed, after "-".
func TestMakePlanWithPrivateHome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		disk string
		ask  func(*Request)
		want string
	}{
		"usual request": {},
		"tools are overlays, without the secrets in them": {
			disk: usualFiles + "/home/me/.cargo/bin/\n/home/me/.cargo/credentials.toml\n/home/me/.rustup/\n",
			ask: func(r *Request) {
				r.Tools = []string{"/home/me/.cargo", "/home/me/.rustup", "/home/me/.nvm"}
				r.Policy.Secrets = append(r.Policy.Secrets, "/home/me/.cargo/credentials.toml")
			},
			want: "+ layered /home/me/.cargo\n+ hidden /home/me/.cargo/credentials.toml\n+ layered /home/me/.rustup",
		},
		"tools that cannot be overlays are read-only": {
			disk: usualFiles + "/home/me/.nvm/ of 7\n/home/me/.pyenv/\n/home/me/.pyenv/versions/ mounted\n/home/me/.local/bin/tool\n",
			ask:  func(r *Request) { r.Tools = []string{"/home/me/.nvm", "/home/me/.pyenv", "/home/me/.local/bin/tool"} },
			want: "+ kept /home/me/.nvm\n+ kept /home/me/.pyenv\n+ kept /home/me/.local/bin/tool",
		},
		"caches that cannot be overlays are read-only": {
			disk: usualFiles + "/home/me/.npm/x/ mounted\n",
			want: "- layered /home/me/.npm\n+ kept /home/me/.npm",
		},
		"a directory of caches that cannot be an overlay shows the known ones only": {
			disk: usualFiles + "/home/me/.cache/ of 7\n/home/me/.cache/browser/\n/home/me/.cache/go-build/\n/home/me/.cache/pip/ of 7\n/home/me/.cache/npm -> /home/me/big/npm\n" +
				"/home/me/big/npm/\n/home/me/.cache/own/pip/\n/home/me/.cache/huggingface/token\n",
			ask: func(r *Request) {
				r.Policy.Known = map[string][]string{"/home/me/.cache": {"go-build", "pip", "npm", "huggingface", "gone"}}
				r.Policy.Omitted = map[string][]string{"/home/me/.cache": {"browser", "own"}}
				r.Policy.Caches = append(r.Policy.Caches, "/home/me/.cache/own/pip")
				r.Policy.Secrets = append(r.Policy.Secrets, "/home/me/.cache/huggingface/token")
			},
			want: "- layered /home/me/.cache\n+ layered /home/me/.cache/go-build\n+ kept /home/me/.cache/pip\n+ layered /home/me/big/npm\n+ layered /home/me/.cache/own/pip\n" +
				"+ layered /home/me/.cache/huggingface\n+ hidden /home/me/.cache/huggingface/token",
		},
		"known caches that are links elsewhere are overlays": {
			disk: usualFiles + "/home/me/.cache/pip -> /srv/pip\n/srv/pip/\n/home/me/.cache/npm -> /home/me/big/npm\n/home/me/big/npm/\n/home/me/.cache/uv -> /home/me/big/uv\n/home/me/big/uv/ of 7\n" +
				"/home/me/.cache/go-build/\n/home/me/.cache/node -> /home/me\n/home/me/.cache/deno -> /home/me/project\n/home/me/.cache/ruff -> /home/me/shared/ruff\n/home/me/shared/ruff -> /home/me/vault\n/home/me/vault/\n",
			ask: func(r *Request) {
				r.Policy.Known = map[string][]string{"/home/me/.cache": {"pip", "npm", "uv", "go-build", "node", "deno", "ruff"}}
				r.Policy.Write = []string{"/home/me/shared"}
			},
			want: "+ layered /srv/pip\n+ layered /home/me/big/npm\n+ kept /home/me/big/uv\n+ writable /home/me/shared",
		},
		"a file system that cannot be a lower layer is read-only": {
			disk: usualFiles + "/home/me/.cache/ no overlay\n/home/me/.cache/browser/\n/home/me/.cache/go-build/\n/home/me/.npm/ no overlay\n/home/me/.nvm/ no overlay\n",
			ask: func(r *Request) {
				r.Policy.Known = map[string][]string{"/home/me/.cache": {"go-build"}}
				r.Policy.Omitted = map[string][]string{"/home/me/.cache": {"browser"}}
				r.Tools = []string{"/home/me/.nvm"}
			},
			want: "- layered /home/me/.cache\n+ kept /home/me/.cache/go-build\n- layered /home/me/.npm\n+ kept /home/me/.npm\n+ kept /home/me/.nvm",
		},
		"an overlay of a cache omits others": {
			disk: usualFiles + "/home/me/.cache/browser/\n/home/me/.cache/own/pip/\n/home/me/.cache/mail/token\n/home/me/.cache/secret/\n",
			ask: func(r *Request) {
				r.Policy.Omitted = map[string][]string{"/home/me/.cache": {"browser", "own", "mail", "secret"}}
				r.Tools = []string{"/home/me/.cache/own/pip"}
				r.Policy.Secrets = append(r.Policy.Secrets, "/home/me/.cache/mail/token", "/home/me/.cache/secret")
			},
			want: "+ hidden /home/me/.cache/browser\n+ hidden /home/me/.cache/mail\n+ hidden /home/me/.cache/secret",
		},
		"a tool shows neither the home, nor projects, nor sandboxes": {
			disk: usualFiles + "/home/me/project/venv/bin/\n",
			ask: func(r *Request) {
				r.Tools = []string{"/home/me", "/home", "/", "/home/me/project/venv", "/home/me/project", "/home/me/.local/share", testDataDir + "/repos", "/usr/bin"}
				r.Logins = []string{"/home/me/.local", "/home/me/project/src"}
				r.PathDirs = append(r.PathDirs, "/home/me/project/venv/bin", "/home/me/data")
			},
		},
		"grants": {
			disk: usualFiles + "/home/me/.config/x/\n/home/me/.claude/\n/home/me/.claude.json\n",
			ask: func(r *Request) {
				r.Policy.Read = []string{"/home/me/.ssh", "/home/me/project/src"}
				r.Policy.Write = []string{"/home/me/data"}
				r.Policy.OverlayWrite = []string{"/home/me/.claude", "/home/me/.claude.json"}
				r.Policy.Hide = []string{"/home/me/.npm"}
			},
			want: "+ kept /home/me/.ssh\n+ kept /home/me/project/src\n+ writable /home/me/data\n+ layered /home/me/.claude\n- layered /home/me/.npm",
		},
		"the login of the sandbox's own agent is read-only": {
			disk: usualFiles + "/home/me/.claude/\n/home/me/.claude.json\n",
			ask:  func(r *Request) { r.Logins = []string{"/home/me/.claude", "/home/me/.claude.json", "/home/me/.codex"} },
			want: "+ kept /home/me/.claude\n+ kept /home/me/.claude.json",
		},
		"integration trees elsewhere are hidden, except for what git needs": {
			disk: usualFiles + "/srv/other/.env\n/srv/other/objects/\n/srv/other/bin/\n/etc/x\n",
			ask: func(r *Request) {
				r.IntegrationTrees = append(r.IntegrationTrees, "/srv/other", "/etc", "/usr")
				r.KeepVisible = []string{"/srv/other/objects"}
				r.PathDirs = append(r.PathDirs, "/srv/other/bin")
			},
			want: "+ hidden /srv/other\n+ kept /srv/other/objects",
		},
		"a repository whose worktree is the home": {
			disk: usualFiles + "/home/me/.git/",
			ask: func(r *Request) {
				r.GitDir, r.IntegrationTrees = "/home/me/.git", []string{"/home/me"}
			},
			want: "- layered /home/me/project/.git\n- hidden /home/me/project\n+ layered /home/me/.git",
		},
		"an integration tree in a private directory is not a place to write": {
			disk: usualFiles + "/tmp/project/.git/\n/tmp/linked/x\n",
			ask: func(r *Request) {
				r.GitDir, r.IntegrationTrees = "/tmp/project/.git", []string{"/tmp/project", "/tmp/linked"}
			},
			want: "- layered /home/me/project/.git\n- hidden /home/me/project\n+ hidden /tmp/project\n+ layered /tmp/project/.git",
		},
		"hiding the home hides its tools too": {
			disk: usualFiles + "/home/me/.cargo/\n",
			ask: func(r *Request) {
				r.Tools, r.Policy.Hide, r.Policy.Caches = []string{"/home/me/.cargo"}, []string{"/home/me"}, nil
			},
			want: "- private /home/me\n- hidden /home/me/project\n+ hidden /home/me\n- layered /home/me/.cache\n- layered /home/me/.npm\n- layered /home/me/go/pkg",
		},
		"a home that is /tmp": {
			ask:  func(r *Request) { r.Home = "/tmp" },
			want: "- private /home/me\n- hidden DATA\n+ hidden DATA\n+ hidden /home/me/.netrc\n+ hidden /home/me/.ssh\n+ masked /home/me",
		},
		"without a home": {
			ask:  func(r *Request) { r.Home = "/nowhere" },
			want: "- private /home/me\n+ hidden /home/me/.netrc\n+ hidden /home/me/.ssh\n+ masked /home/me",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, disk := privateRequest(), c.disk
			if disk == "" {
				disk = usualFiles
			}
			if c.ask != nil {
				c.ask(&r)
			}
			m := usualMachine(disk)
			p, err := MakePlan(r, m)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Split(privatePlan, "\n")
			for line := range strings.SplitSeq(c.want, "\n") {
				if added, ok := strings.CutPrefix(line, "+ "); ok {
					want = append(want, added)
				} else if removed, ok := strings.CutPrefix(line, "- "); ok {
					want = slices.DeleteFunc(want, func(w string) bool { return w == removed })
				}
			}
			slices.Sort(want)
			if got := planLines(p); got != strings.Join(want, "\n") {
				t.Errorf("got:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
			}
			checkPlan(t, r, m, p)
		})
	}
}

func TestMakePlanLinksToolsIntoPrivateHome(t *testing.T) {
	t.Parallel()
	r := privateRequest()
	r.Home = "/users/me"
	r.Tools = []string{"/users/me/.cargo", "/users/me/.local/bin", "/users/me/.nvm/versions", "/users/me/.loop", "/users/me/.gone"}
	r.Policy.Named = []NamedPath{{ReadKey, "/users/me/models", "/data/models"}, {ReadKey, "/users/me/secret", "/home/me/vault"}}
	p, err := MakePlan(r, usualMachine(usualFiles+`
		/users/me -> /home/me
		/home/me/.cargo -> /data/cargo
		/data/cargo/bin/
		/home/me/.local/bin -> /users/me/stow/bin
		/home/me/stow -> /home/me/dotfiles
		/home/me/dotfiles/bin/
		/home/me/.nvm -> /home/me/tools/nvm
		/home/me/tools/nvm/versions/
		/home/me/.loop -> /home/me/.loop
		/home/me/.gone -> /home/me/nowhere
		/home/me/models -> /data/models
		/data/models/
		/home/me/secret -> /home/me/vault
		/home/me/vault/
	`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Link{
		{"/home/me/.cargo", "/data/cargo"},
		{"/home/me/.local/bin", "/users/me/stow/bin"},
		{"/home/me/stow", "/home/me/dotfiles"},
		{"/home/me/.nvm", "/home/me/tools/nvm"},
		{"/home/me/models", "/data/models"},
	}
	if !slices.Equal(p.Links, want) {
		t.Errorf("got %q, want %q", p.Links, want)
	}
}

func TestMakePlanLinksHomeInPrivateDirectory(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]Request{"private": privateRequest(), "read-only": usualRequest()} {
		r.Home = "/tmp/users/me"
		p, err := MakePlan(r, usualMachine(usualFiles+"/tmp/users -> /tmp/real\n/tmp/real/me -> /home/me\n"))
		if err != nil {
			t.Fatal(err)
		}
		if want := []Link{{"/tmp/users", "/tmp/real"}, {"/tmp/real/me", "/home/me"}}; !slices.Equal(p.Links, want) {
			t.Errorf("%s home: got %q, want %q", name, p.Links, want)
		}
	}
}

func TestMakePlanRefusesHomesThatCannotBePrivate(t *testing.T) {
	t.Parallel()
	for home, want := range map[string]string{
		"/":                      "the home directory is /",
		testSandboxDir + "/tree": "is in a directory of the sandbox",
		"/home/me/project/.git":  "is in a directory of the sandbox",
		testDataDir + "/repos/r": "is in a directory of the sandbox",
	} {
		r := privateRequest()
		r.Home = home
		var refused *RefusedError
		if _, err := MakePlan(r, usualMachine(usualFiles)); !errors.As(err, &refused) || refused.Wall != "private-home" || !strings.Contains(err.Error(), want) || !strings.Contains(refused.Remedy, "readonly") {
			t.Errorf("home %s: %v, want %s", home, err, want)
		}
	}
}

func TestWallsThatShowMoreOfTheHomeAreWeaker(t *testing.T) {
	t.Parallel()
	m := usualMachine(usualFiles)
	private, err := MakePlan(privateRequest(), m)
	if err != nil {
		t.Fatal(err)
	}
	readOnly, err := MakePlan(usualRequest(), m)
	if err != nil {
		t.Fatal(err)
	}
	r := privateRequest()
	r.Policy.Read = []string{"/home/me/.ssh"}
	granted, err := MakePlan(r, m)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		have, want Plan
		weaker     string
	}{
		"same":                {private, private, ""},
		"read-only home":      {readOnly, private, "/home/me is visible"},
		"grant that is gone":  {granted, private, "/home/me/.ssh is visible"},
		"grant that was new":  {private, granted, ""},
		"private is stricter": {private, readOnly, ""},
	} {
		if got := c.have.WeakerThan(c.want); got != c.weaker {
			t.Errorf("%s: %q, want %q", name, got, c.weaker)
		}
	}
}

// checkPrivateHome checks that in a private home only the paths that a request names are visible.
func checkPrivateHome(t *testing.T, r Request, m Machine, p Plan) {
	t.Helper()
	if p.Home.Path == "" {
		return
	}
	if p.Home.Dir != r.OverlayDir+"/home" || m.Files.Lookup(r.Home).Path != p.Home.Path {
		t.Errorf("home %+v of %s", p.Home, r.Home)
	}
	named := map[string]bool{}
	for _, path := range slices.Concat([]string{r.Tree, r.GitDir}, r.Tools, r.Logins, r.KeepVisible, r.Policy.Caches, r.Policy.Read, r.Policy.Write, r.Policy.OverlayWrite) {
		named[m.Files.Lookup(path).Path] = true
	}
	for dir, names := range r.Policy.Known {
		for _, name := range names {
			named[m.Files.Lookup(dir+"/"+name).Path] = true
		}
	}
	p.forEachPath(func(path string, s Visibility) {
		if guard.IsOrContains(p.Home.Path, path) && s != Hidden && s != Private && s != Filtered && s != MaskedAround && !named[path] {
			t.Errorf("%s is %s in a private home", path, s)
		}
	})
	for _, path := range slices.Concat(p.Kept, p.Writable) {
		for _, tree := range r.IntegrationTrees {
			granted := slices.ContainsFunc(slices.Concat(r.Policy.Read, r.KeepVisible), func(g string) bool { return m.Files.Lookup(g).Path == path })
			if guard.IsOrContains(tree, path) && !guard.IsOrContains(tree, p.Home.Path) && !granted && path != r.Tree {
				t.Errorf("%s shows a part of the integration tree %s", path, tree)
			}
		}
	}
}
