package pathset

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// maxPaths is the number of directories that one sandbox can have: each is a mount.
const maxPaths = 64

// resolvePaths resolves the directories of a request, and refuses paths over which no sandbox can be.
func resolvePaths(r *core.Repository, given []string) ([]store.PathMeta, error) {
	if len(given) > maxPaths {
		return nil, &fault.InvalidError{What: "paths", Value: fmt.Sprint(len(given)), Want: fmt.Sprintf("at most %d directories", maxPaths)}
	}
	var paths []store.PathMeta
	for _, g := range given {
		p, err := resolvePath(r, g)
		if err != nil {
			return nil, err
		}
		for _, other := range paths {
			place, err := guard.Locate(p.Path)
			if err != nil {
				return nil, &fault.UnsafePathError{Path: p.Path, Why: err.Error()}
			}
			if rel := place.Relation(other.Path); rel != guard.Disjoint {
				return nil, overlaps(p.Path, rel, other.Path, "another directory of the sandbox")
			}
		}
		paths = append(paths, p)
	}
	return paths, nil
}

// resolvePath resolves one directory.
func resolvePath(r *core.Repository, given string) (store.PathMeta, error) {
	invalid := func(want string) error { return &fault.InvalidError{What: "path", Value: given, Want: want} }
	none := store.PathMeta{}
	if given == "" || strings.ContainsAny(given, "\n\x00") || !utf8.ValidString(given) {
		return none, invalid("a directory, named in valid UTF-8 and without a newline")
	}
	path, err := guard.ResolveFrom(r.CallerDir, given)
	if err != nil {
		return none, err
	}
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		return none, invalid("a directory that exists")
	case err != nil:
		return none, err
	case !fi.IsDir():
		return none, invalid("a directory")
	case path == "/":
		return none, invalid("a directory other than the root directory")
	case !utf8.ValidString(path) || strings.ContainsAny(path, "\n"):
		return none, invalid("a directory whose path without symbolic links is valid UTF-8 and has no newline")
	}
	return store.PathMeta{Given: filepath.Clean(given), Path: path}, CheckPlace(r, path)
}

// CheckPlace refuses a directory that overlaps the data directory, an integration tree, a sandbox, or the inside of a git directory.
func CheckPlace(r *core.Repository, path string) error {
	place, err := guard.Locate(path)
	if err != nil {
		return &fault.UnsafePathError{Path: path, Why: err.Error()}
	}
	if rel := place.Relation(r.DataDir); rel != guard.Disjoint {
		return overlaps(path, rel, r.DataDir, "the data directory")
	}
	var marked *fault.OverlapError
	if err := core.CheckUnmarked(place); errors.As(err, &marked) {
		return overlaps(path, guard.Relation(marked.Relation), marked.Other, "an integration worktree or a sandbox")
	} else if err != nil {
		return err
	}
	trees, err := integrationTrees(r)
	if err != nil {
		return err
	}
	for _, other := range trees {
		if rel := place.Relation(other); rel != guard.Disjoint {
			return overlaps(path, rel, other, "an integration worktree")
		}
	}
	for dir := range place.Ancestors {
		is, err := git.IsGitDir(dir)
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		if is || guard.IsReservedName(filepath.Base(dir)) {
			return &fault.UnsafePathError{Path: path, Why: dir + " is a git directory, whose files never land"}
		}
	}
	return nil
}

// overlaps refuses a directory that overlaps another one.
func overlaps(path string, rel guard.Relation, other, what string) error {
	why := "it is " + what
	if rel != guard.Same {
		why = fmt.Sprintf("it %s %s, %s", rel, other, what)
	}
	return &fault.UnsafePathError{Path: path, Why: why}
}

// integrationTrees lists the recorded integration trees of all repositories.
func integrationTrees(r *core.Repository) ([]string, error) {
	repos, err := r.Store.Repos()
	if err != nil {
		return nil, err
	}
	var trees []string
	for _, repo := range repos {
		worktrees, err := r.Store.Worktrees(repo.RepoID, nil)
		if err != nil {
			return nil, err
		}
		for _, w := range worktrees {
			if w.TreePath != "" && w.Record.State != store.Archived {
				trees = append(trees, w.TreePath)
			}
		}
	}
	return trees, nil
}
