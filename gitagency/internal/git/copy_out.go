package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// Copying says what files to write, and where to.
type Copying struct {
	Commit  string // required: whose files
	Dir     string // required: an empty directory
	Scratch string // required: a path that nothing is at, on any file system; what git needs meanwhile is left there

	// Distrust: somebody who is not trusted can write to the configuration of the repository, and nothing of it
	// counts. A file that would need a filter which only that has is refused with a *DistrustedError.
	Distrust bool
}

// DistrustedError is a file that could not be written without running what somebody who is not trusted may have
// configured.
type DistrustedError struct {
	Filters []string // that only the repository's own configuration has
	Err     error
}

func (e *DistrustedError) Error() string {
	return fmt.Sprintf("%v; what %s would run stands where a sandbox without walls can write", e.Err, "filter."+strings.Join(e.Filters, ", filter."))
}

func (e *DistrustedError) Unwrap() error { return e.Err }

// CopyOut writes the files of a commit into a directory that belongs to no repository, as a checkout would: filters
// that the user configured run, hooks do not, links are made and never followed, submodules are empty directories.
// Nothing that a worktree could have configured counts, nothing is fetched, and the repository is not changed.
func (r *Repo) CopyOut(ctx context.Context, c Copying) error {
	p, filters, err := r.copying(c)
	if err != nil {
		return err
	}
	_, err = r.change(ctx, p, "read-tree", "-m", "-u", "--no-sparse-checkout", "--no-recurse-submodules", c.Commit)
	if exitedWith(err, 128) && len(filters) > 0 {
		return &DistrustedError{Filters: filters, Err: err}
	}
	return err
}

// StageCopied makes an index for a worktree whose files were copied by CopyOut: that of a tree. What is the same in it is known
// to be, and need not be read again. The scratch directory goes.
func (r *Repo) StageCopied(ctx context.Context, w Registration, c Copying, tree string) error {
	p, _, err := r.copying(c)
	if err != nil {
		return err
	}
	// Also here the filters must not be those of the repository: what is as young as the index is read again for it.
	if _, err := r.change(ctx, p, "read-tree", "-m", "-i", "--no-recurse-submodules", tree); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(c.Scratch, "index"), filepath.Join(r.AdminDir(w.Name), "index")); err != nil {
		return err
	}
	return durable.RemoveTree(c.Scratch)
}

// copying is where git works while it copies, and the filters that must not be needed for that.
func (r *Repo) copying(c Copying) (p place, filters []string, err error) {
	p = place{
		gitDir: c.Scratch, tree: c.Dir,
		env:    []string{"GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none"},
		config: append([]string{"-c", "core.untrackedCache=false", "-c", "core.splitIndex=false", "-c", "core.sparseCheckout=false"}, r.workers()...),
	}
	if !c.Distrust {
		return p, nil, r.fillScratch(Subject{Onto: c.Commit}, c.Commit, c.Scratch)
	}
	filters = r.ownFilters()
	objects, err := r.detachedScratch(c, filters)
	p.env = append(p.env, objects...)
	return p, filters, err
}

// detachedScratch makes a git directory that has nothing of the repository but its objects; those are returned as git
// wants to be told of them. The filters are there without a program, and required: git refuses what would need them. (Without
// as much as an empty one, git would look for none and write the file as it is.)
func (r *Repo) detachedScratch(c Copying, filters []string) (env []string, err error) {
	objects := filepath.Join(c.Scratch, "objects")
	for _, dir := range []string{objects, filepath.Join(c.Scratch, "refs")} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return nil, err
		}
	}
	config := "[core]\n\trepositoryformatversion = 0\n"
	if len(c.Commit) == 64 {
		config = "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectFormat = sha256\n"
	}
	config += "[core]\n"
	for _, key := range []string{"fileMode", "symlinks"} { // what the file system can do
		if value := r.Config.Value("core." + strings.ToLower(key)); value == "false" || value == "true" {
			config += "\t" + key + " = " + value + "\n"
		}
	}
	for _, name := range filters {
		config += "[filter \"" + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + "\"]\n\tsmudge = \"\"\n\trequired = true\n"
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(c.Scratch, "HEAD"), []byte(c.Commit+"\n"), 0o666),
		os.WriteFile(filepath.Join(c.Scratch, "config"), []byte(config), 0o666))
	return []string{
		"GIT_OBJECT_DIRECTORY=" + objects,
		"GIT_ALTERNATE_OBJECT_DIRECTORIES=" + inList(filepath.Join(r.CommonDir, "objects")),
	}, err
}

// ownFilters are the filters that only the repository's own configuration has.
func (r *Repo) ownFilters() []string {
	own := map[string]bool{}
	for key, settings := range r.Config {
		name, is := strings.CutPrefix(key, "filter.")
		if !is {
			continue
		}
		name = name[:max(strings.LastIndexByte(name, '.'), 0)]
		users := slices.ContainsFunc(settings, Setting.Trusted)
		if mine, seen := own[name]; !seen || mine {
			own[name] = !users
		}
	}
	var names []string
	for name, mine := range own {
		if mine && !strings.Contains(name, "\n") { // a name with a line break is none that an attribute could have
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// workers tells git to write files on every core there is, unless the user said otherwise.
func (r *Repo) workers() []string {
	if _, set := r.Config["checkout.workers"]; set {
		return nil
	}
	return []string{"-c", "checkout.workers=0"}
}

// IsGitDir reports whether a directory looks like git's own: that of a repository, or the entry of a linked worktree.
func IsGitDir(dir string) (bool, error) {
	for _, kind := range [][]string{{"HEAD", "objects", "refs"}, {"HEAD", "commondir"}} {
		all := true
		for _, name := range kind {
			_, err := os.Lstat(filepath.Join(dir, name))
			switch {
			case err != nil && nothingThere(err):
				all = false
			case err != nil:
				return false, err
			}
		}
		if all {
			return true, nil
		}
	}
	return false, nil
}
