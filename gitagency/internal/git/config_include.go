package git

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// includeIf begins the keys that include a file where something is so. They are listed also where it is not.
const includeIf = "includeif."

// includesVary reports whether a file is included in one worktree, and perhaps not in another.
func (r *Repo) includesVary() bool {
	for key := range r.Config {
		condition, is := strings.CutPrefix(key, includeIf)
		if is && r.tellsApart(strings.TrimSuffix(condition, ".path")) {
			return true
		}
	}
	return false
}

// tellsApart reports whether a condition may be true of one worktree and not of another. Most people's is whether the
// repository is below some directory, which is the same for all of them.
func (r *Repo) tellsApart(condition string) bool {
	kind, dir, _ := strings.Cut(condition, ":")
	switch kind {
	case "hasconfig": // of remotes
		return false
	case "gitdir":
	default:
		return true
	}
	if rest, home := strings.CutPrefix(dir, "~/"); home {
		at, err := filepath.EvalSymlinks(proc.Variable(r.env, "HOME"))
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
		return true // it depends on who has come which way
	}
	return strings.HasPrefix(dir+"/", r.CommonDir+"/")
}

// ends reports whether git would be done, some time, with all that is to be read for the settings of a worktree. Who can
// write there could have put a pipe anywhere.
func (r *Repo) ends(gitDir string) bool {
	if _, err := readSmall(gitDir, "HEAD"); err != nil {
		return false
	}
	read := reading{home: proc.Variable(r.env, "HOME"), left: 100}
	for key, settings := range r.Config {
		if !strings.HasPrefix(key, includeIf) {
			continue
		}
		for _, s := range settings {
			if !s.Trusted() && !read.included(r.fileOf(s), s.Value) {
				return false
			}
		}
	}
	return read.file(filepath.Join(gitDir, ownConfig))
}

// fileOf is the file that something is set in; empty where it is in none. Git names what is in the worktree that somebody
// stands in from its top.
func (r *Repo) fileOf(s Setting) string {
	file, is := strings.CutPrefix(s.Origin, "file:")
	switch {
	case !is:
		return ""
	case filepath.IsAbs(file):
		return file
	}
	return filepath.Join(cmp.Or(r.TopLevel, r.CommonDir), file)
}

// reading is what git does with files that include others.
type reading struct {
	home string
	left int // files that may still be read
}

// file reports whether one is read to its end, with all that it includes, whether or not that counts.
func (g *reading) file(path string) bool {
	if g.left--; g.left < 0 {
		return false
	}
	data, err := durable.ReadFile(path, 1<<20)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	entries, err := parseAnyConfig(string(data))
	return err == nil && !slices.ContainsFunc(entries, func(e configEntry) bool {
		return includes(e.key) && !e.bare && !g.included(path, e.value)
	})
}

// included is file, of one that another names.
func (g *reading) included(from, name string) bool {
	if rest, home := strings.CutPrefix(name, "~/"); home {
		name = filepath.Join(g.home, rest)
	}
	if strings.HasPrefix(name, "~") || strings.HasPrefix(name, "%") || strings.HasPrefix(name, ":") { // somebody else's, or not a path alone
		return false
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(from), name)
	}
	return g.file(name)
}

// includes reports whether a key names a file that is read too.
func includes(key string) bool {
	condition, conditional := strings.CutPrefix(key, includeIf)
	return key == "include.path" || conditional && strings.HasSuffix(condition, ".path")
}
