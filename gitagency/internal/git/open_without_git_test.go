package git

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// OpenWithoutGit must find the same repository and settings as Open or none, and it must find the common kinds of
// repository.
func TestOpenWithoutGitAgreesWithOpen(t *testing.T) {
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
	homeEnv := []string{"GIT_CONFIG_NOSYSTEM=1", "HOME=" + home}

	for _, c := range []struct {
		name, dir string
		env       []string // added to the environment of the fixture, or replacing it if the first is PATH
		found     bool
	}{
		{"the top", l.Root, nil, true},
		{"a sub directory", filepath.Join(l.Root, "dir"), nil, true},
		{"through a symlink", filepath.Join(link, "dir"), nil, true},
		{"a linked worktree", linked, nil, true},
		{"below a linked worktree", filepath.Join(linked, "below"), nil, true},
		{"settings in the repository", set, nil, true},
		{"a repository in another", nested, nil, true},
		{"user config", l.Root, append([]string{"PATH=" + os.Getenv("PATH")}, homeEnv...), true},
		{"settings in XDG_CONFIG_HOME", l.Root, append([]string{"PATH=" + os.Getenv("PATH"), "XDG_CONFIG_HOME=" + config}, homeEnv...), true},
		{"no user config", l.Root, []string{"GIT_CONFIG_GLOBAL=" + os.DevNull}, true},
		{"GIT_CONFIG_SYSTEM", l.Root, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_SYSTEM=" + filepath.Join(root, "dotfile")}, true},

		{"environment of a git subcommand", l.Root, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1", "GIT_EXEC_PATH=/usr/lib/git-core"}, true},
		{"a HOME behind a symlink", l.Root, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root + "/deep-link/..", "GIT_CONFIG_NOSYSTEM=1"}, true},
		{"a HOME with a trailing slash", l.Root, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home + "/", "GIT_CONFIG_NOSYSTEM=1"}, true},

		{"another GIT_EXEC_PATH", l.Root, []string{"GIT_EXEC_PATH=" + root}, false},
		{"objects that cannot be entered", shut, nil, false},
		{"a bare repository", bare, nil, false},
		{"a worktree of a bare repository", ofBare, nil, false},
		{"a git directory elsewhere", separate, nil, false},
		{"a submodule", filepath.Join(around, "sub"), nil, false},
		{"in the git directory", filepath.Join(l.Root, ".git/refs"), nil, false},
		{"an include", including, nil, false},
		{"extensions", own, nil, false},
		{"core.worktree", elsewhere, nil, false},
		{"a malformed config file", broken, nil, false},
		{"a git directory without HEAD", invalid, nil, false},
		{"a malformed HEAD, inside another repository", headless, nil, false},
		{"a directory that looks like a git directory", filepath.Join(inside, "looks/refs"), nil, false},
		{"a worktree without its entry", leadsNowhere, nil, false},
		{"no repository", root, nil, false},
		{"GIT_DIR", linked, []string{"GIT_DIR=" + filepath.Join(l.Root, ".git")}, false},
		{"GIT_INDEX_FILE", l.Root, []string{"GIT_INDEX_FILE=x"}, false},
		{"GIT_CONFIG_COUNT", l.Root, []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=agency.x", "GIT_CONFIG_VALUE_0=y"}, false},
		{"GIT_CONFIG_PARAMETERS", l.Root, []string{"GIT_CONFIG_PARAMETERS='agency.x=y'"}, false},
		{"GIT_CEILING_DIRECTORIES", filepath.Join(l.Root, "dir"), []string{"GIT_CEILING_DIRECTORIES=" + l.Root}, false},
		{"no HOME", l.Root, []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1"}, false},
		{"no git in PATH", l.Root, []string{"PATH=" + root, "HOME=" + home}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env := append(l.Env[:len(l.Env):len(l.Env)], c.env...)
			if len(c.env) > 0 && strings.HasPrefix(c.env[0], "PATH=") {
				env = c.env
			}
			got, found := OpenWithoutGit(c.dir, env)
			if found != c.found {
				t.Errorf("found %v: %+v", found, got)
			}
			if !found {
				return
			}
			want, err := Open(t.Context(), c.dir, env)
			if err != nil {
				t.Fatal(err)
			}
			if want.Version = (Version{}); !reflect.DeepEqual(got, want) {
				t.Errorf("without git\n%+v\nwith git\n%+v", got, want)
			}
		})
	}
}

func TestOpenWithoutGitRefusesForeignOwner(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can give a directory away")
	}
	for _, name := range []string{".", ".git"} {
		l := gittest.New(t)
		if _, found := OpenWithoutGit(l.Root, l.Env); !found {
			t.Fatal("not found before the owner changed")
		}
		l.Must(os.Chown(filepath.Join(l.Root, name), 65534, 65534))
		if repo, found := OpenWithoutGit(l.Root, l.Env); found {
			t.Errorf("%s has another owner, and was opened: %+v", name, repo)
		}
	}
}
