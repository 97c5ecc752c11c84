package status

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
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
// trusted, and from blocking on a FIFO.
func checkCapturable(ctx context.Context, r *git.Repo, s git.WorktreeSpec, entries []index.Entry) error {
	var nested []string
	if s.Dir != "" {
		var hollow []*git.SparseFileError
		var err error
		if nested, hollow, err = git.WalkWorktree(s.Dir); err != nil {
			return err
		}
		for _, h := range hollow {
			_, err := r.RunRead(ctx, git.RunOptions{GitDir: r.AdminDir(s.Name), WorkTree: s.Dir}, "check-ignore", "--quiet", "--", h.Path)
			if err != nil { // not ignored, or git could not tell
				return h
			}
		}
		for _, e := range entries {
			if e.Mode != object.ModeGitlink {
				continue
			}
			path := filepath.Join(s.Dir, string(e.Name))
			if inside, err := os.ReadDir(path); err == nil && len(inside) > 0 {
				nested = append(nested, path)
			}
		}
		if fi, err := os.Lstat(filepath.Join(s.Dir, ".git")); err == nil && fi.IsDir() {
			nested = append(nested, filepath.Join(s.Dir, ".git"))
		}
	}
	// Repositories of submodules that are, or were, checked out there.
	modules := filepath.Join(r.AdminDir(s.Name), "modules")
	if inside, err := os.ReadDir(modules); err == nil && len(inside) > 0 {
		nested = append(nested, modules)
	}
	if len(nested) > 0 {
		slices.Sort(nested)
		return &NestedRepositoryError{Dir: s.Dir, Paths: slices.Compact(nested)}
	}
	return nil
}

// CheckNested refuses the removal of a scanned worktree that has a repository in an ignored directory, or a .git
// directory in place of its .git file: a *NestedRepositoryError. The scan reports all other repositories as left out.
func CheckNested(r *git.Repo, s git.WorktreeSpec, l Report) error {
	var nested []string
	for _, dir := range l.IgnoredDirs {
		err := filepath.WalkDir(filepath.Join(s.Dir, dir), func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil // gone since it was listed
			case err != nil:
				return err
			case d.Name() != ".git":
				return nil
			}
			nested = append(nested, filepath.Dir(path))
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if fi, err := os.Lstat(filepath.Join(s.Dir, ".git")); err == nil && fi.IsDir() {
		nested = append(nested, filepath.Join(s.Dir, ".git"))
	}
	if len(nested) > 0 {
		slices.Sort(nested)
		return &NestedRepositoryError{Dir: s.Dir, Paths: slices.Compact(nested)}
	}
	return nil
}
