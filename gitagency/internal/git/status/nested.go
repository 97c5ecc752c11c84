package status

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"golang.org/x/sys/unix"
)

// NestedRepositoryError reports repositories inside a worktree. Git would keep at most the id of their current
// commit; everything else in them would be lost with the worktree.
type NestedRepositoryError struct {
	Dir   string
	Paths []string
}

func (e *NestedRepositoryError) Error() string {
	return fmt.Sprintf("%s contains nested repositories, which a commit cannot hold: %s", e.Dir, strings.Join(e.Paths, ", "))
}

// checkCapturable refuses a worktree with contents that no capture would hold: repositories, ignored or not, and
// files in the place of a submodule. It also keeps git from entering a nested repository, whose configuration is not
// trusted.
func (v *worktreeScan) checkCapturable(found worktreeWalk) error {
	r, s := v.repo, v.spec
	for _, h := range found.hollow {
		name, err := filepath.Rel(s.Dir, h.Path)
		if err != nil {
			return err
		}
		if ignored, err := v.isIgnored(name, false); err != nil || !ignored {
			return errors.Join(err, h)
		}
	}
	v.ignoreRules = nil // the scan has a budget of its own: see ignoreVerdict
	nested := slices.DeleteFunc(found.nested, func(at string) bool {
		name, err := filepath.Rel(s.Dir, at)
		return err == nil && s.KeptSubmodules[name] != ""
	})
	for _, e := range v.entries {
		if e.Mode != object.ModeGitlink || s.KeptSubmodules[string(e.Name)] != "" {
			continue
		}
		if inside, _, err := v.tree.ReadDir(string(e.Name)); err == nil && len(inside) > 0 {
			nested = append(nested, v.tree.Join(string(e.Name)))
		}
	}
	if v.hasGitDir() {
		nested = append(nested, v.tree.Join(".git"))
	}
	// Repositories of submodules that are, or were, checked out there.
	if modules := modulesDir(r, s); modules != "" {
		nested = append(nested, modules)
	}
	if len(nested) > 0 {
		slices.Sort(nested)
		return &NestedRepositoryError{Dir: s.Dir, Paths: slices.Compact(nested)}
	}
	return nil
}

// modulesDir returns the directory of the repositories of submodules that are, or were, checked out in a worktree; ""
// where there are none but those that are kept elsewhere.
func modulesDir(r *git.Repo, s git.WorktreeSpec) string {
	modules := filepath.Join(r.AdminDir(s.Name), "modules")
	kept := slices.Collect(maps.Values(s.KeptSubmodules))
	if !hasOtherThan(modules, "", kept) {
		return ""
	}
	return modules
}

// hasOtherThan reports whether a directory below top has any content but the directories at the given paths.
func hasOtherThan(top, dir string, paths []string) bool {
	inside, err := os.ReadDir(filepath.Join(top, dir))
	return err == nil && slices.ContainsFunc(inside, func(e fs.DirEntry) bool {
		at := path.Join(dir, e.Name())
		if slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(p, at+"/") }) {
			return hasOtherThan(top, at, paths)
		}
		return !slices.Contains(paths, at)
	})
}

// hasGitDir reports whether the worktree has a .git directory in place of its .git file.
func (v *worktreeScan) hasGitDir() bool {
	var st unix.Stat_t
	return !v.spec.IsClone && v.tree.Lstat(".git", &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// CheckNested refuses the removal of a scanned worktree that has a repository in an ignored directory, or a .git
// directory in place of its .git file: a *NestedRepositoryError. The scan reports all other repositories as left out.
func CheckNested(s git.WorktreeSpec, l Report) (err error) {
	tree, err := OpenTree(s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tree.Close()) }()
	v := worktreeScan{spec: s, tree: tree}
	var nested []string
	for _, dir := range l.IgnoredDirs {
		found, err := v.findRepositories(dir)
		if err != nil {
			return err
		}
		nested = append(nested, found...)
	}
	if v.hasGitDir() {
		nested = append(nested, tree.Join(".git"))
	}
	if len(nested) > 0 {
		slices.Sort(nested)
		return &NestedRepositoryError{Dir: s.Dir, Paths: slices.Compact(nested)}
	}
	return nil
}

// findRepositories lists the repositories in a directory, and not those inside of another.
func (v *worktreeScan) findRepositories(dir string) (found []string, err error) {
	entries, _, err := v.tree.ReadDir(dir)
	if err != nil {
		if beneath.IsGone(err) {
			err = nil
		}
		return nil, err
	}
	if slices.ContainsFunc(entries, isDotGit) {
		return []string{v.tree.Join(dir)}, nil
	}
	for _, e := range entries {
		if !e.Kind.IsDir() {
			continue
		}
		below, err := v.findRepositories(path.Join(dir, e.Name))
		if err != nil {
			return nil, err
		}
		found = append(found, below...)
	}
	return found, nil
}
