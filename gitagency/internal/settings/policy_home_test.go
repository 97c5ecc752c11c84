package settings

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

func TestFindToolsFollowsPathAndVariables(t *testing.T) {
	t.Parallel()
	home, _ := makeHome(t, "opt/a/bin/a", "opt/a/lib/x", "projects/p/secret", "projects/bin/w", "bin/x -> ../opt/b/bin/b", "opt/b/bin/b", "bin/y -> /usr/bin/env", "bin/z -> ../projects/p/secret")
	tools, _ := findTools([]string{"PATH=" + home + "/opt/a/bin:" + home + "/bin:/usr/bin:" + home + "/projects/bin:" + home, "CARGO_HOME=" + home + "/rust", "NVM_DIR=relative"}, home, nil)
	for _, want := range []string{"opt/a/bin", "opt/a/lib", "bin", "opt/b/bin", "projects/bin", "rust/bin", "projects/p/secret", ".rustup", ".pyenv", ".local/bin", ".local/share/mise"} {
		if !slices.Contains(tools, home+"/"+want) {
			t.Errorf("%s is no tool", want)
		}
	}
	for _, no := range []string{"", "/projects", "/opt/a", "/opt", "/projects/p", "/rust", "/.cargo/bin", "/.local", "/.local/share", "/go", "/lib"} {
		if slices.Contains(tools, home+no) {
			t.Errorf("~%s is a tool", no)
		}
	}
}

// A command could link to anything from a directory that it can write to.
func TestFindToolsFollowsNoLinksInWritableDirectories(t *testing.T) {
	t.Parallel()
	home, _ := makeHome(t, "real/bin/z -> ../../projects/secret", "projects/secret", "around -> real")
	env := []string{"PATH=" + home + "/around/bin"}
	if tools, _ := findTools(env, home, nil); !slices.Contains(tools, home+"/projects/secret") {
		t.Error("a link on PATH is not followed")
	}
	if tools, _ := findTools(env, home, []string{home + "/real"}); slices.Contains(tools, home+"/projects/secret") {
		t.Error("a link in a writable directory is followed")
	}
}

// Paths on PATH and targets of links may have the name of the home, or that of the directory to which it leads.
func TestFindToolsInHomeThatIsLink(t *testing.T) {
	t.Parallel()
	base, _ := makeHome(t, "data/bin/rel -> ../opt/r/bin/rel", "data/opt/r/bin/rel", "data/opt/a/bin/abs", "data/dot/stow -> ../opt/s/bin/stow", "data/opt/s/bin/stow", "data/.local/bin/x", "data/stow -> dot", "home -> data")
	home, real := base+"/home", base+"/data"
	if err := os.Symlink(real+"/opt/a/bin/abs", real+"/bin/abs"); err != nil {
		t.Fatal(err)
	}
	tools, _ := findTools([]string{"PATH=" + home + "/bin:" + home + "/stow:" + real + "/.local/bin:" + real + "/opt/p/bin"}, home, nil)
	for _, want := range []string{"opt/r/bin", "opt/a/bin", "opt/s/bin", "opt/p/bin", "opt/p/lib"} {
		if !slices.Contains(tools, home+"/"+want) {
			t.Errorf("~/%s is no tool", want)
		}
	}
	for _, tool := range tools {
		if !strings.HasPrefix(tool, home+"/") || tool == home+"/.local/share" {
			t.Errorf("%s is a tool", tool)
		}
	}
}

func TestForRunnerShowsOwnLoginOnly(t *testing.T) {
	t.Parallel()
	home, env := makeHome(t, ".claude/", ".codex/auth.json", ".gemini/", "models/")
	for runner, want := range map[string]string{"claude": ".claude models", "": ".claude .codex models", "my-own": ".claude .codex models"} {
		p, err := readPolicy(makeSettings(WriteKey, "private:~/.claude", WriteKey, "private:~/.codex", WriteKey, "private:~/models"), env, nil, store.Grants{})
		if err != nil {
			t.Fatal(err)
		}
		p.ForRunner(runner)
		if got := strings.ReplaceAll(strings.Join(p.OverlayWrite, " "), home+"/", ""); got != want {
			t.Errorf("runner %q: private are %q, want %q", runner, got, want)
		}
		if slices.Contains(p.logins, home+"/.codex") || slices.Contains(p.logins, home+"/.claude") != (runner == "claude") {
			t.Errorf("runner %q: logins %q", runner, p.logins)
		}
	}
}

func TestHomeFilesContainNoSecrets(t *testing.T) {
	t.Parallel()
	home, env := makeHome(t, ".cargo/", ".config/git/", ".config/go/")
	for name, text := range map[string]string{
		".cargo/config.toml": "[registry]\ntoken = \"\"\"\nx\"\"\"\n[build]\njobs = 2\n",
		".cargo/env":         "export OTHER=x\n",
		".config/go/env":     "GOPROXY=https://me:pw@proxy.example\nGOAUTH=x\n",
		".config/git/ignore": "*.token\ncredentials.json\n",
		".condarc":           "token:\n  - x\nchannels: []\n",
		"rules":              "secrets/\n",
		".nvmrc":             "20\n",
	} {
		if err := os.WriteFile(home+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		settings   config.Settings
		goEnv      string
		unparsable []string
	}{
		"by default":        {goEnv: "GOPROXY=https://proxy.example\n", unparsable: []string{home + "/.cargo/env"}},
		"variables granted": {settings: makeSettings(PassedVariablesKey, "GOA*"), goEnv: "GOPROXY=https://proxy.example\nGOAUTH=x\n", unparsable: []string{home + "/.cargo/env"}},
		"file granted":      {settings: makeSettings(ReadKey, home+"/.cargo/env"), goEnv: "GOPROXY=https://proxy.example\n"},
		"directory granted": {settings: makeSettings(ReadKey, home+"/.cargo"), goEnv: "GOPROXY=https://proxy.example\n"},
		"hidden":            {settings: makeSettings(hideKey, home+"/.cargo/env"), goEnv: "GOPROXY=https://proxy.example\n"},
	} {
		p, err := readPolicy(c.settings, env, nil, store.Grants{})
		if err != nil {
			t.Fatal(err)
		}
		files, unparsable := p.HomeFiles(GitConfigSecrets{NamedFiles: []string{home + "/rules"}}, guard.ResolveOrEmpty)
		got := map[string]string{}
		for _, f := range files {
			got[f.Name] = f.Text
		}
		want := map[string]string{
			".cargo/config.toml": "[registry]\n[build]\njobs = 2\n", ".config/go/env": c.goEnv,
			".config/git/ignore": "*.token\ncredentials.json\n", ".condarc": "channels: []\n", "rules": "secrets/\n", ".nvmrc": "20\n",
		}
		if !maps.Equal(got, want) || !slices.Equal(unparsable, c.unparsable) {
			t.Errorf("%s:\ngot  %q, unparsable %q\nwant %q, unparsable %q", name, got, unparsable, want, c.unparsable)
		}
	}
}

// What was checked is what is copied: a link that took the place of a file meanwhile is not followed, and a file of git's
// configuration counts only with the content that was read from the place that was checked.
func TestHomeFilesFollowNoLinksThatWereNotChecked(t *testing.T) {
	t.Parallel()
	home, env := makeHome(t, ".aws/", "dir/", "real/", ".editorconfig -> dir/ed", ".nvmrc -> .aws/credentials", ".inputrc -> real/in")
	for name, text := range map[string]string{".aws/credentials": "secret\n", "real/in": "set x\n", "real/ed": "secret\n", "gitconfig": "[a]\nb = c\n"} {
		if err := os.WriteFile(home+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := readPolicy(config.Settings{}, env, nil, store.Grants{})
	if err != nil {
		t.Fatal(err)
	}
	exchanged := false
	target := func(path string) string {
		real := guard.ResolveOrEmpty(path)
		if path == home+"/.editorconfig" {
			real, exchanged = home+"/dir/ed", true
			if err := errors.Join(os.Remove(home+"/dir"), os.Symlink("real", home+"/dir")); err != nil {
				t.Error(err)
			}
		}
		return real
	}
	user := []GitConfigFile{{Path: home + "/gitconfig", Original: "[secret]\n", Text: "[secret]\n"}}
	var got []string
	files, _ := p.HomeFiles(GitConfigSecrets{UserFiles: user}, target)
	for _, f := range files {
		got = append(got, f.Name)
	}
	if want := []string{".inputrc"}; !slices.Equal(got, want) || !exchanged {
		t.Errorf("copied %q, want %q", got, want)
	}
}

func TestHomeSettingIsChecked(t *testing.T) {
	t.Parallel()
	for value, private := range map[string]bool{homePrivate: true, homeReadOnly: false} {
		if got, err := readPrivateHome(makeSettings(homeKey, value)); got != private || err != nil {
			t.Errorf("%s: %v, %v", value, got, err)
		}
	}
	if private, err := readPrivateHome(config.Settings{}); !private || err != nil {
		t.Errorf("by default: %v, %v", private, err)
	}
	if _, err := readPrivateHome(makeSettings(homeKey, "Private")); err == nil || !strings.Contains(err.Error(), wantHome) {
		t.Errorf("got %v", err)
	}
}
