package status

import (
	"errors"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/ignore"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// IgnoreRules decides which untracked paths of a worktree are ignored. An agent may have written the .gitignore files,
// so they are read through handles and evaluated without git.
type IgnoreRules struct {
	tree    *beneath.Dir
	limits  readlimit.Limits
	matcher *ignore.Matcher
	dirs    map[string]ignoreDir // by path; "." is the top directory

	fileStats map[string]git.FileStat // stat data of the files with rules in the worktree, by path; zero for missing ones
}

// ignoreDir is what the rules say about the names in a directory.
type ignoreDir struct {
	ignored bool           // everything below is ignored
	lists   []*ignore.List // rules of the .gitignore files of this directory and its parents, top first
}

// ignoreStep is the share of the time limit that one step of a Matcher is counted as. A step takes up to 8 ns; the limit
// is used up in a fraction of the time, so that commands that all meet the same rules fail fast. A tree with a million
// untracked paths and 60 rules needs an eighth of the default limit.
const ignoreStep = 60 * time.Nanosecond

// newIgnoreRules reads the rules that hold for the whole worktree.
func (v *worktreeScan) newIgnoreRules() (*IgnoreRules, error) {
	g := &IgnoreRules{tree: v.tree, limits: v.repo.ReadLimits, dirs: map[string]ignoreDir{}, fileStats: map[string]git.FileStat{}}
	var outer []*ignore.List
	for _, file := range []string{v.excludesFile(), filepath.Join(v.repo.CommonDir, "info", "exclude")} { // the last one has precedence
		list, err := g.readOuter(file)
		if err != nil {
			return nil, err
		}
		if list != nil {
			outer = append(outer, list)
		}
	}
	steps := int64(math.MaxInt64)
	if g.limits.Time > 0 {
		steps = int64(g.limits.Time / ignoreStep)
	}
	g.matcher = ignore.NewMatcher(outer, v.repo.ConfigBool("core.ignorecase", false), steps)
	return g, nil
}

// OpenIgnoreRules opens a directory with .gitignore files, which together with the rules for every worktree of the
// repository decide about its paths. The result has to be closed.
func OpenIgnoreRules(r *git.Repo, s git.WorktreeSpec, dir string) (*IgnoreRules, error) {
	if dir != s.Dir {
		s.Dir, s.Overlay = dir, nil
	}
	tree, err := OpenTree(s)
	if err != nil {
		return nil, err
	}
	rules, err := (&worktreeScan{tree: tree, repo: r, spec: s}).newIgnoreRules()
	if err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	return rules, nil
}

// Close closes the directory of OpenIgnoreRules.
func (g *IgnoreRules) Close() error { return g.tree.Close() }

// IgnoredPaths lists those of some paths of files that the .gitignore files in a directory, or the rules for every
// worktree of the repository, ignore. The files themselves need not exist.
func IgnoredPaths(r *git.Repo, s git.WorktreeSpec, dir string, names []string) (ignored []string, err error) {
	rules, err := OpenIgnoreRules(r, s, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rules.Close()) }()
	for _, name := range names {
		is, err := rules.IsIgnored(name, false)
		if err != nil {
			return nil, err
		}
		if is {
			ignored = append(ignored, name)
		}
	}
	return ignored, nil
}

// IsIgnored reports whether an untracked path is ignored.
func (g *IgnoreRules) IsIgnored(name string, isDir bool) (bool, error) {
	parent, err := g.dir(path.Dir(name))
	if err != nil || parent.ignored {
		return parent.ignored, err
	}
	return g.match(parent, name, isDir)
}

func (g *IgnoreRules) match(parent ignoreDir, name string, isDir bool) (bool, error) {
	ignored, err := g.matcher.Ignored(parent.lists, name, isDir)
	if errors.As(err, new(*ignore.LimitError)) {
		err = g.limits.Exceeded("evaluating the ignore rules of "+g.tree.Join("."), readlimit.Time)
	}
	return ignored, err
}

// dir returns the rules for the names in a directory.
func (g *IgnoreRules) dir(name string) (ignoreDir, error) {
	if d, known := g.dirs[name]; known {
		return d, nil
	}
	var d ignoreDir
	if name != "." {
		parent, err := g.dir(path.Dir(name))
		if err != nil {
			return d, err
		}
		if d.ignored = parent.ignored; !d.ignored {
			if d.ignored, err = g.match(parent, name, true); err != nil {
				return d, err
			}
		}
		d.lists = slices.Clip(parent.lists)
	}
	if !d.ignored {
		own, err := g.readList(name)
		if err != nil {
			return d, err
		}
		if own != nil {
			d.lists = append(d.lists, own)
		}
	}
	g.dirs[name] = d
	return d, nil
}

// readList reads the .gitignore of a directory; nil where there is none.
func (g *IgnoreRules) readList(dir string) (*ignore.List, error) {
	base := ""
	if dir != "." {
		base = dir + "/"
	}
	return g.readInner(path.Join(dir, ".gitignore"), base)
}

// readInner reads a file with rules in the worktree; nil where there is none. As in git, a symlink or an unreadable file
// counts as none.
func (g *IgnoreRules) readInner(name, base string) (*ignore.List, error) {
	f, st, err := g.tree.OpenFile(name)
	if err != nil {
		if g.fileStats[name] = (git.FileStat{}); !beneath.IsGone(err) {
			g.fileStats[name] = statIn(g.tree, name)
		}
		return nil, nil
	}
	defer f.Close()
	g.fileStats[name] = git.FileStatOf(&st)
	return g.parse(f, st.Size, base)
}

// readOuter reads a file with rules for the whole worktree; nil where there is none.
func (g *IgnoreRules) readOuter(file string) (*ignore.List, error) {
	switch {
	case file == "":
		return nil, nil
	case !filepath.IsAbs(file):
		return g.readInner(filepath.Clean(file), "")
	}
	f, fi, err := git.OpenRegular(file)
	if err != nil {
		return nil, nil // as in git
	}
	defer f.Close()
	return g.parse(f, fi.Size(), "")
}

func (g *IgnoreRules) parse(f *os.File, size int64, base string) (*ignore.List, error) {
	if err := g.limits.CheckSize(f.Name(), readlimit.Output, size); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, size))
	if err != nil {
		return nil, err
	}
	return ignore.Parse(data, base), nil
}
