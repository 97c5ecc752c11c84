package core

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/ignore"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"golang.org/x/sys/unix"
)

// ignoredFiles decides which files of a tree are left out of an archive because git ignores them. Rules that cannot be
// read ignore nothing, so that the archive keeps too much rather than too little.
type ignoredFiles struct {
	top     *guard.DirHandle
	matcher *ignore.Matcher
	dirs    map[string]ignoredDir // by path; "." is the top directory
}

// ignoredDir is what the rules say about the names in a directory.
type ignoredDir struct {
	all   bool           // everything in it is ignored
	lists []*ignore.List // rules of the .gitignore files of this directory and its parents, top first
}

// maxIgnoreSteps bounds the work of matching, since an agent may have written the rules: some ten seconds.
const maxIgnoreSteps = 1 << 30

func newIgnoredFiles(repo *git.Repo, top *guard.DirHandle) *ignoredFiles {
	var outer []*ignore.List
	for _, file := range []string{excludesFile(repo), filepath.Join(repo.CommonDir, "info", "exclude")} { // the last one has precedence
		if data, err := durable.ReadFile(file, 1<<20); err == nil {
			outer = append(outer, ignore.Parse(data, ""))
		}
	}
	return &ignoredFiles{top: top, matcher: ignore.NewMatcher(outer, repo.ConfigBool("core.ignorecase", false), maxIgnoreSteps), dirs: map[string]ignoredDir{}}
}

// excludesFile returns the path of the user's own rules, as far as the repository does not name them.
func excludesFile(repo *git.Repo) string {
	home := proc.Getenv(repo.Env, "HOME")
	file := filepath.Join(cmp.Or(proc.Getenv(repo.Env, "XDG_CONFIG_HOME"), filepath.Join(home, ".config")), "git", "ignore")
	for _, s := range repo.Config["core.excludesfile"] {
		if s.Trusted() {
			file = settings.ExpandHome(s.Value, home)
		}
	}
	if !filepath.IsAbs(file) {
		return os.DevNull // relative to the tree, where an agent can write it
	}
	return file
}

// has reports whether a path is ignored. A path longer than git can open never is.
func (g *ignoredFiles) has(name string, isDir bool) bool {
	if len(name) > unix.PathMax {
		return false
	}
	parent := g.dir(path.Dir(name))
	return parent.all || g.match(parent, name, isDir)
}

func (g *ignoredFiles) match(parent ignoredDir, name string, isDir bool) bool {
	ignored, err := g.matcher.Ignored(parent.lists, name, isDir)
	return ignored && err == nil
}

// dir returns the rules for the names in a directory.
func (g *ignoredFiles) dir(name string) ignoredDir {
	if d, known := g.dirs[name]; known {
		return d
	}
	var d ignoredDir
	if name != "." {
		parent := g.dir(path.Dir(name))
		d = ignoredDir{all: parent.all || g.match(parent, name, true), lists: slices.Clip(parent.lists)}
	}
	if own := g.readList(name); !d.all && own != nil {
		d.lists = append(d.lists, own)
	}
	g.dirs[name] = d
	return d
}

// readList reads the .gitignore of a directory; nil where there is none that can be read.
func (g *ignoredFiles) readList(name string) *ignore.List {
	dir, err := g.top.OpenPathForce(name)
	if err != nil {
		return nil
	}
	defer dir.Close()
	data, err := readSmall(dir, ".gitignore")
	if err != nil {
		return nil
	}
	base := ""
	if name != "." {
		base = name + "/"
	}
	return ignore.Parse(data, base)
}
