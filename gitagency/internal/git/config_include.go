package git

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// IncludesDifferByWorktree reports whether a conditional include may apply to one worktree and not to another.
func (r *Repo) IncludesDifferByWorktree() bool {
	for key := range r.Config {
		condition, is := strings.CutPrefix(key, config.IncludeIfPrefix)
		if is && r.conditionDiffersByWorktree(strings.TrimSuffix(condition, ".path")) {
			return true
		}
	}
	return false
}

// conditionDiffersByWorktree reports whether a condition may be true for one worktree and false for another. Most
// users test whether the repository is below some directory, which is the same for all its worktrees.
func (r *Repo) conditionDiffersByWorktree(condition string) bool {
	kind, dir, _ := strings.Cut(condition, ":")
	switch kind {
	case "hasconfig": // depends on remotes only
		return false
	case "gitdir":
	default:
		return true
	}
	if rest, home := strings.CutPrefix(dir, "~/"); home {
		at, err := filepath.EvalSymlinks(proc.Getenv(r.Env, "HOME"))
		if err != nil {
			return true
		}
		dir = at + "/" + rest
	}
	dir = strings.TrimSuffix(dir, "/")
	if !filepath.IsAbs(dir) || strings.ContainsAny(dir, `*?[\`) {
		return true
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir {
		return true // the match depends on the path by which git found the repository
	}
	return strings.HasPrefix(dir+"/", r.CommonDir+"/")
}

// configReadTerminates reports whether git can read all configuration files of a worktree without blocking. An agent
// that can write there could have put a pipe anywhere.
func (r *Repo) configReadTerminates(gitDir string) bool {
	if _, err := ReadSmallFile(gitDir, "HEAD"); err != nil {
		return false
	}
	read := includeWalk{home: proc.Getenv(r.Env, "HOME"), filesLeft: 100}
	for key, settings := range r.Config {
		if !strings.HasPrefix(key, config.IncludeIfPrefix) {
			continue
		}
		for _, s := range settings {
			if !s.Trusted() && !read.canReadIncluded(r.originFile(s), s.Value) {
				return false
			}
		}
	}
	return read.canRead(filepath.Join(gitDir, WorktreeConfigFile))
}

// originFile returns the path of the file that has a setting; empty where it is in no file. Git prints a relative
// path for a file of the current worktree.
func (r *Repo) originFile(s config.Setting) string {
	file, is := strings.CutPrefix(s.Origin, "file:")
	switch {
	case !is:
		return ""
	case filepath.IsAbs(file):
		return file
	}
	return filepath.Join(cmp.Or(r.TopLevel, r.CommonDir), file)
}

// includeWalk follows the includes of configuration files, as git does.
type includeWalk struct {
	home      string
	filesLeft int // files that may still be read
}

// canRead reports whether a file and everything it includes, unconditionally or not, can be read to the end.
func (g *includeWalk) canRead(path string) bool {
	if g.filesLeft--; g.filesLeft < 0 {
		return false
	}
	data, err := durable.ReadFile(path, 1<<20)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	entries, err := config.ParseFile(string(data))
	return err == nil && !slices.ContainsFunc(entries, func(e config.FileEntry) bool {
		return config.IsIncludeKey(e.Key) && !e.NoValue && !g.canReadIncluded(path, e.Value)
	})
}

// canReadIncluded is canRead for a file that another file includes.
func (g *includeWalk) canReadIncluded(from, name string) bool {
	if rest, home := strings.CutPrefix(name, "~/"); home {
		name = filepath.Join(g.home, rest)
	}
	if strings.HasPrefix(name, "~") || strings.HasPrefix(name, "%") || strings.HasPrefix(name, ":") { // home of another user, or not a plain path
		return false
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(from), name)
	}
	return g.canRead(name)
}
