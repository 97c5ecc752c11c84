package git

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// What is found without git must be what git finds; and where people work it must be found.
func TestWhatIsFoundWithoutGitIsWhatGitFinds(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	root := gittest.TempDir(t)
	clone := func(name string) string {
		dir := filepath.Join(root, name)
		l.Git("clone", "-q", ".", dir)
		return dir
	}
	linked := filepath.Join(root, "linked")
	l.Git("worktree", "add", "-q", "--detach", linked)
	l.Must(os.Mkdir(filepath.Join(linked, "below"), 0o755))
	link := filepath.Join(root, "link")
	l.Must(os.Symlink(l.Root, link))
	set := clone("set")
	for _, kv := range [][]string{
		{"agency.dataDir", "~/data"},
		{"agency.x", "a b"},
		{"agency.profile Of.mine.changeset", "clone"},
		{"--add", "agency.x", " \t\"quoted\\\n "},
		{"alias.long", "!f() { echo \"$1\" # ; }; f"},
		{"color.ui", "false"},
	} {
		l.GitIn(set, append([]string{"config"}, kv...)...)
	}
	bare := filepath.Join(root, "bare.git")
	l.Git("clone", "-q", "--bare", ".", bare)
	ofBare := filepath.Join(root, "of-bare")
	l.GitIn(bare, "worktree", "add", "-q", "--detach", ofBare)
	separate := filepath.Join(root, "separate")
	l.Git("clone", "-q", "--separate-git-dir", separate+".elsewhere", ".", separate)
	around := clone("around")
	l.GitIn(around, "-c", "protocol.file.allow=always", "submodule", "add", "-q", l.Root, "sub")
	nested := clone("around/nested")
	including := clone("including")
	l.GitIn(including, "config", "include.path", "more")
	own := clone("own")
	l.GitIn(own, "config", "extensions.worktreeConfig", "true")
	elsewhere := clone("elsewhere")
	l.GitIn(elsewhere, "config", "core.worktree", linked)
	broken := clone("broken")
	l.Must(os.WriteFile(filepath.Join(broken, ".git/config"), []byte("[core\n"), 0o644))
	invalid := clone("invalid")
	l.Must(os.Remove(filepath.Join(invalid, ".git/HEAD")))
	headless := clone("around/headless")
	l.Must(os.WriteFile(filepath.Join(headless, ".git/HEAD"), []byte("nothing\n"), 0o644))
	inside := clone("inside")
	l.Must(os.MkdirAll(filepath.Join(inside, "looks/objects"), 0o755))
	l.Must(os.MkdirAll(filepath.Join(inside, "looks/refs"), 0o755))
	l.Must(os.WriteFile(filepath.Join(inside, "looks/HEAD"), []byte("ref: refs/heads/main\n"), 0o644))
	leadsNowhere := filepath.Join(root, "leads-nowhere")
	l.Git("worktree", "add", "-q", "--detach", leadsNowhere)
	l.Must(os.RemoveAll(filepath.Join(l.Root, ".git/worktrees/leads-nowhere")))
	config := filepath.Join(root, "config")
	l.Must(os.MkdirAll(filepath.Join(config, "git"), 0o755))
	l.Must(os.WriteFile(filepath.Join(config, "git/config"), []byte("[agency]\n\tx = xdg\n"), 0o644))
	home := filepath.Join(root, "home")
	l.Must(os.Mkdir(home, 0o755))
	l.Must(os.WriteFile(filepath.Join(root, "dotfile"), []byte("[agency]\n\ty = home # c\n\tz\n"), 0o644))
	l.Must(os.Symlink("../dotfile", filepath.Join(home, ".gitconfig")))
	l.Must(os.MkdirAll(filepath.Join(root, "outer/deep"), 0o755))
	l.Must(os.MkdirAll(filepath.Join(root, "outer/.config/git"), 0o755))
	l.Must(os.WriteFile(filepath.Join(root, "outer/.config/git/config"), []byte("[agency]\n\tx = outer\n"), 0o644))
	l.Must(os.Symlink("outer/deep", filepath.Join(root, "deep-link")))
	shut := clone("shut")
	l.Must(os.Chmod(filepath.Join(shut, ".git/objects"), 0o600))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(shut, ".git/objects"), 0o700) })
	own1 := []string{"GIT_CONFIG_NOSYSTEM=1", "HOME=" + home}

	for _, c := range []struct {
		name, dir string
		env       []string // instead of the lab's, if the first is PATH
		found     bool
	}{
		{"the top", l.Root, nil, true},
		{"a sub directory", filepath.Join(l.Root, "dir"), nil, true},
		{"through a symlink", filepath.Join(link, "dir"), nil, true},
		{"a linked worktree", linked, nil, true},
		{"below a linked worktree", filepath.Join(linked, "below"), nil, true},
		{"settings", set, nil, true},
		{"a repository in another", nested, nil, true},
		{"settings of the user", l.Root, append([]string{"PATH=" + os.Getenv("PATH")}, own1...), true},
		{"settings elsewhere", l.Root, append([]string{"PATH=" + os.Getenv("PATH"), "XDG_CONFIG_HOME=" + config}, own1...), true},
		{"no settings of the user", l.Root, []string{"GIT_CONFIG_GLOBAL=" + os.DevNull}, true},
		{"another file for the machine", l.Root, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_SYSTEM=" + filepath.Join(root, "dotfile")}, true},

		{"as git calls us", l.Root, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1", "GIT_EXEC_PATH=/usr/lib/git-core"}, true},
		{"a home behind a link", l.Root, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root + "/deep-link/..", "GIT_CONFIG_NOSYSTEM=1"}, true},
		{"a home with a slash", l.Root, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home + "/", "GIT_CONFIG_NOSYSTEM=1"}, true},

		{"another directory of helpers", l.Root, []string{"GIT_EXEC_PATH=" + root}, false},
		{"objects that cannot be entered", shut, nil, false},
		{"a bare repository", bare, nil, false},
		{"a worktree of a bare one", ofBare, nil, false},
		{"a git directory elsewhere", separate, nil, false},
		{"a submodule", filepath.Join(around, "sub"), nil, false},
		{"in the git directory", filepath.Join(l.Root, ".git/refs"), nil, false},
		{"an include", including, nil, false},
		{"extensions", own, nil, false},
		{"core.worktree", elsewhere, nil, false},
		{"settings that are broken", broken, nil, false},
		{"a repository that is none", invalid, nil, false},
		{"a HEAD that says nothing, in another repository", headless, nil, false},
		{"what looks like a repository", filepath.Join(inside, "looks/refs"), nil, false},
		{"an entry that is gone", leadsNowhere, nil, false},
		{"no repository", root, nil, false},
		{"GIT_DIR", linked, []string{"GIT_DIR=" + filepath.Join(l.Root, ".git")}, false},
		{"GIT_INDEX_FILE", l.Root, []string{"GIT_INDEX_FILE=x"}, false},
		{"settings of the command line", l.Root, []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=agency.x", "GIT_CONFIG_VALUE_0=y"}, false},
		{"GIT_CONFIG_PARAMETERS", l.Root, []string{"GIT_CONFIG_PARAMETERS='agency.x=y'"}, false},
		{"a ceiling", filepath.Join(l.Root, "dir"), []string{"GIT_CEILING_DIRECTORIES=" + l.Root}, false},
		{"no home", l.Root, []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1"}, false},
		{"another git", l.Root, []string{"PATH=" + root, "HOME=" + home}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env := append(l.Env[:len(l.Env):len(l.Env)], c.env...)
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
		l := gittest.New(t)
		if _, found := OpenWithoutGit(l.Root, l.Env); !found {
			t.Fatal("not found at all")
		}
		l.Must(os.Chown(filepath.Join(l.Root, name), 65534, 65534))
		if repo, found := OpenWithoutGit(l.Root, l.Env); found {
			t.Errorf("%s is somebody else's: %+v", name, repo)
		}
	}
}
