package handoff

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
)

// ObjectsOutside lists the directories outside of the git directory from which git reads objects: alternates, and the
// targets of symbolic links in the place of an object directory or of its pack directory. They must be visible behind the
// walls.
func ObjectsOutside(r *core.Repository) []string {
	outside := r.Git.Alternates()
	for _, objects := range slices.Concat([]string{objectDir(r)}, outside) {
		for _, dir := range []string{objects, filepath.Join(objects, "pack")} {
			if target := linkTarget(dir); target != "" {
				outside = append(outside, target)
			}
		}
	}
	return outside
}

// BorrowLinkedObjects has git behind the walls borrow the objects of a repository whose object directory is a symbolic
// link, as from an alternate: through the link it could write nothing. The upper directory then has an object directory of
// its own. It must not be mounted.
func BorrowLinkedObjects(r *core.Repository, upper string) error {
	const info, name = "objects/info", "alternates"
	target := linkTarget(objectDir(r))
	if target == "" {
		return nil
	}
	had, err := overlay.ReadUpperFile(upper, info+"/"+name, 1<<20)
	if err != nil || slices.Contains(strings.Split(string(had.Data), "\n"), git.QuoteAlternate(target)) {
		return err
	}
	root, err := os.OpenRoot(upper) // it may contain symbolic links of the sandbox
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(info, 0o755); err != nil {
		return err
	}
	return overlay.ReplaceUpperFile(upper, info, name, append(had.Data, git.QuoteAlternate(target)+"\n"...))
}

func objectDir(r *core.Repository) string { return filepath.Join(r.CommonDir, "objects") }

// linkTarget returns the directory that a symbolic link leads to; empty if it is no link, or leads nowhere.
func linkTarget(path string) string {
	if _, err := os.Readlink(path); err != nil {
		return ""
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "" // git reports it
	}
	return target
}
