package git

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// What is found without git must be what git finds; and where people work it must be found.
func TestWhatIsFoundWithoutGitIsWhatGitFinds(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	root := tempDir(t)
	clone := func(name string) string {
		dir := filepath.Join(root, name)
		l.git("clone", "-q", ".", dir)
		return dir
	}
	linked := filepath.Join(root, "linked")
	l.git("worktree", "add", "-q", "--detach", linked)
	l.must(os.Mkdir(filepath.Join(linked, "below"), 0o755))
	link := filepath.Join(root, "link")
	l.must(os.Symlink(l.dir, link))
	set := clone("set")
	for _, kv := range [][]string{
		{"agency.dataDir", "~/data"},
		{"agency.x", "a b"},
		{"agency.profile Of.mine.changeset", "clone"},
		{"--add", "agency.x", " \t\"quoted\\\n "},
		{"alias.long", "!f() { echo \"$1\" # ; }; f"},
		{"color.ui", "false"},
	} {
		l.in(set, append([]string{"config"}, kv...)...)
	}
	bare := filepath.Join(root, "bare.git")
	l.git("clone", "-q", "--bare", ".", bare)
	ofBare := filepath.Join(root, "of-bare")
	l.in(bare, "worktree", "add", "-q", "--detach", ofBare)
	separate := filepath.Join(root, "separate")
	l.git("clone", "-q", "--separate-git-dir", separate+".elsewhere", ".", separate)
	around := clone("around")
	l.in(around, "-c", "protocol.file.allow=always", "submodule", "add", "-q", l.dir, "sub")
	nested := clone("around/nested")
	including := clone("including")
	l.in(including, "config", "include.path", "more")
	own := clone("own")
	l.in(own, "config", "extensions.worktreeConfig", "true")
	elsewhere := clone("elsewhere")
	l.in(elsewhere, "config", "core.worktree", linked)
	broken := clone("broken")
	l.must(os.WriteFile(filepath.Join(broken, ".git/config"), []byte("[core\n"), 0o644))
	invalid := clone("invalid")
	l.must(os.Remove(filepath.Join(invalid, ".git/HEAD")))
	headless := clone("around/headless")
	l.must(os.WriteFile(filepath.Join(headless, ".git/HEAD"), []byte("nothing\n"), 0o644))
	inside := clone("inside")
	l.must(os.MkdirAll(filepath.Join(inside, "looks/objects"), 0o755))
	l.must(os.MkdirAll(filepath.Join(inside, "looks/refs"), 0o755))
	l.must(os.WriteFile(filepath.Join(inside, "looks/HEAD"), []byte("ref: refs/heads/main\n"), 0o644))
	leadsNowhere := filepath.Join(root, "leads-nowhere")
	l.git("worktree", "add", "-q", "--detach", leadsNowhere)
	l.must(os.RemoveAll(filepath.Join(l.dir, ".git/worktrees/leads-nowhere")))
	config := filepath.Join(root, "config")
	l.must(os.MkdirAll(filepath.Join(config, "git"), 0o755))
	l.must(os.WriteFile(filepath.Join(config, "git/config"), []byte("[agency]\n\tx = xdg\n"), 0o644))
	home := filepath.Join(root, "home")
	l.must(os.Mkdir(home, 0o755))
	l.must(os.WriteFile(filepath.Join(root, "dotfile"), []byte("[agency]\n\ty = home # c\n\tz\n"), 0o644))
	l.must(os.Symlink("../dotfile", filepath.Join(home, ".gitconfig")))
	l.must(os.MkdirAll(filepath.Join(root, "outer/deep"), 0o755))
	l.must(os.MkdirAll(filepath.Join(root, "outer/.config/git"), 0o755))
	l.must(os.WriteFile(filepath.Join(root, "outer/.config/git/config"), []byte("[agency]\n\tx = outer\n"), 0o644))
	l.must(os.Symlink("outer/deep", filepath.Join(root, "deep-link")))
	shut := clone("shut")
	l.must(os.Chmod(filepath.Join(shut, ".git/objects"), 0o600))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(shut, ".git/objects"), 0o700) })
	own1 := []string{"GIT_CONFIG_NOSYSTEM=1", "HOME=" + home}

	for _, c := range []struct {
		name, dir string
		env       []string // instead of the lab's, if the first is PATH
		found     bool
	}{
		{"the top", l.dir, nil, true},
		{"a sub directory", filepath.Join(l.dir, "dir"), nil, true},
		{"through a symlink", filepath.Join(link, "dir"), nil, true},
		{"a linked worktree", linked, nil, true},
		{"below a linked worktree", filepath.Join(linked, "below"), nil, true},
		{"settings", set, nil, true},
		{"a repository in another", nested, nil, true},
		{"settings of the user", l.dir, append([]string{"PATH=" + os.Getenv("PATH")}, own1...), true},
		{"settings elsewhere", l.dir, append([]string{"PATH=" + os.Getenv("PATH"), "XDG_CONFIG_HOME=" + config}, own1...), true},
		{"no settings of the user", l.dir, []string{"GIT_CONFIG_GLOBAL=" + os.DevNull}, true},
		{"another file for the machine", l.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_SYSTEM=" + filepath.Join(root, "dotfile")}, true},

		{"as git calls us", l.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1", "GIT_EXEC_PATH=/usr/lib/git-core"}, true},
		{"a home behind a link", l.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root + "/deep-link/..", "GIT_CONFIG_NOSYSTEM=1"}, true},
		{"a home with a slash", l.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home + "/", "GIT_CONFIG_NOSYSTEM=1"}, true},

		{"another directory of helpers", l.dir, []string{"GIT_EXEC_PATH=" + root}, false},
		{"objects that cannot be entered", shut, nil, false},
		{"a bare repository", bare, nil, false},
		{"a worktree of a bare one", ofBare, nil, false},
		{"a git directory elsewhere", separate, nil, false},
		{"a submodule", filepath.Join(around, "sub"), nil, false},
		{"in the git directory", filepath.Join(l.dir, ".git/refs"), nil, false},
		{"an include", including, nil, false},
		{"extensions", own, nil, false},
		{"core.worktree", elsewhere, nil, false},
		{"settings that are broken", broken, nil, false},
		{"a repository that is none", invalid, nil, false},
		{"a HEAD that says nothing, in another repository", headless, nil, false},
		{"what looks like a repository", filepath.Join(inside, "looks/refs"), nil, false},
		{"an entry that is gone", leadsNowhere, nil, false},
		{"no repository", root, nil, false},
		{"GIT_DIR", linked, []string{"GIT_DIR=" + filepath.Join(l.dir, ".git")}, false},
		{"GIT_INDEX_FILE", l.dir, []string{"GIT_INDEX_FILE=x"}, false},
		{"settings of the command line", l.dir, []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=agency.x", "GIT_CONFIG_VALUE_0=y"}, false},
		{"GIT_CONFIG_PARAMETERS", l.dir, []string{"GIT_CONFIG_PARAMETERS='agency.x=y'"}, false},
		{"a ceiling", filepath.Join(l.dir, "dir"), []string{"GIT_CEILING_DIRECTORIES=" + l.dir}, false},
		{"no home", l.dir, []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1"}, false},
		{"another git", l.dir, []string{"PATH=" + root, "HOME=" + home}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env := append(l.env[:len(l.env):len(l.env)], c.env...)
			if len(c.env) > 0 && strings.HasPrefix(c.env[0], "PATH=") {
				env = c.env
			}
			swift, found := OpenWithoutGit(c.dir, env)
			if found != c.found {
				t.Errorf("found %v: %+v", found, swift)
			}
			if !found {
				return
			}
			asked, err := Open(t.Context(), c.dir, env)
			if err != nil {
				t.Fatal(err)
			}
			if asked.Version = (Version{}); !reflect.DeepEqual(swift, asked) {
				t.Errorf("without git\n%+v\nwith it\n%+v", swift, asked)
			}
		})
	}
}

func TestOthersRepositoriesAreLeftToGit(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can give a directory away")
	}
	for _, name := range []string{".", ".git"} {
		l := newLab(t)
		if _, found := OpenWithoutGit(l.dir, l.env); !found {
			t.Fatal("not found at all")
		}
		l.must(os.Chown(filepath.Join(l.dir, name), 65534, 65534))
		if repo, found := OpenWithoutGit(l.dir, l.env); found {
			t.Errorf("%s is somebody else's: %+v", name, repo)
		}
	}
}

func TestTheSameKeysAreWantedOfBoth(t *testing.T) {
	t.Parallel()
	wanted := regexp.MustCompile(keyPattern)
	for _, key := range []string{
		"agency.x", "agency.a.b", "agencyx.y", "agency", "color.agency", "color.ui", "color.pager", "color.diff", "pager.agency", "pager.log",
		"checkout.workers", "core.bare", "core.worktree", "core.pager", "core.repositoryformatversion", "core.editor", "xcore.bare",
		"extensions.worktreeconfig", "extensions.objectformat", "extensions.partialclone", "includeif.onbranch:x.path", "includeif.onbranch:x.other", "include.path", "includeif.path",
		"filter.x.clean", "filter.x.y.required", "filter.x.other", "filter.clean",
	} {
		if isWantedKey(key) != wanted.MatchString(key) {
			t.Errorf("%s: %v", key, isWantedKey(key))
		}
	}
}

// A configuration means what git takes it for, or is left to git.
func TestConfigurationsMeanWhatGitTakesThemFor(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	words := []string{
		"[a]", "[A \"b.C\"]", "[a \"x\\\"y\\\\\"]", "[a.b]", "[ a]", "[a", "[a]x=1", "[a] # c", "\n", "\n", "\n", "k", "K-2", "k = v", "k=v w  x", "k = \"q # ; \" r",
		"k = a\\\n b", "k = \\t\\n\\\\\\\"", "k = v ; c", "k = v#c", "  ", "\t", "k =", "k = \"", "k=\"\"", "2k = v", "k v", "# c", "; c", "k = a\tb", "=", "\\", "[include]\n path = x",
		"[includeIf \"gitdir:x\"]\n path = x", "k = \\x", "\"", "\r\n", "k = v \\\n", "\xef\xbb\xbf", "k = \xff", "[a \"\"]", "[a \"\n\"]", "k = a\vb",
	}
	random := rand.New(rand.NewPCG(1, 2))
	understood := 0
	for n := range 1500 {
		var text strings.Builder
		text.WriteString("[s]\n")
		for range random.IntN(8) {
			text.WriteString(words[random.IntN(len(words))])
			if random.IntN(3) > 0 {
				text.WriteByte('\n')
			}
		}
		if sameAsGit(t, filepath.Join(dir, fmt.Sprint(n)), text.String()) {
			understood++
		}
	}
	if understood < 300 {
		t.Errorf("only %d were understood", understood)
	}
}

func FuzzConfigurationsMeanWhatGitTakesThemFor(f *testing.F) {
	f.Add("[a \"b\"]\n\tc = \"d # \" e ; f\n\tg\n")
	f.Fuzz(func(t *testing.T, text string) { sameAsGit(t, filepath.Join(t.TempDir(), "config"), text) })
}

// sameAsGit compares what we make of a file with what git does. It is false where that is left to git.
func sameAsGit(t *testing.T, path, text string) bool {
	t.Helper()
	entries, err := parsePlainFile(text)
	if err != nil {
		return false
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "git", "config", "-z", "--no-includes", "--list", "--file", path)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull}
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("git does not take this for a configuration: %q", text)
		return true
	}
	ours := ""
	for _, e := range entries {
		if e.ambiguous {
			return false
		}
		if ours += e.key; !e.noValue {
			ours += "\n" + e.value
		}
		ours += "\x00"
	}
	if ours != string(out) {
		t.Errorf("%q\nto us   %q\nto git  %q", text, ours, out)
	}
	return true
}
