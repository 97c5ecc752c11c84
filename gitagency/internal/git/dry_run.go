package git

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// DryRunCapture returns what Capture would return, and refuses what it would refuse, without changing anything: it
// runs Capture with a temporary object directory, which it removes. So the returned commit does not exist, unless it
// existed before. Only the mtimes of existing objects that git meets again are new. A worktree that could be read
// only after a chmod is refused too.
func (r *Repo) DryRunCapture(ctx context.Context, s WorktreeSpec) (got CaptureResult, err error) {
	err = r.dryRun(func(repo *Repo) error {
		got, err = repo.Capture(ctx, s)
		return err
	})
	return got, err
}

// HoldsWorktree reports whether a commit, with everything reachable from it, holds all that Capture would find in a
// worktree. It changes nothing.
func (r *Repo) HoldsWorktree(ctx context.Context, commit string, s WorktreeSpec) (all bool, err error) {
	err = r.dryRun(func(repo *Repo) error {
		got, err := repo.Capture(ctx, s)
		if err != nil {
			return err
		}
		all, err = repo.Covers(ctx, commit, got.Commit)
		return err
	})
	return all, err
}

// dryRun calls do with a repository that reads all objects, and writes new ones to a temporary directory.
func (r *Repo) dryRun(do func(repo *Repo) error) (err error) {
	scratch, err := makeTempDir()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.remove()) }()
	if err := os.Mkdir(filepath.Join(scratch.path, "objects"), 0o700); err != nil {
		return err
	}
	return do(r.dryRunRepo(scratch.path))
}

// dryRunRepo returns the repository with all writes directed into dir.
func (r *Repo) dryRunRepo(dir string) *Repo {
	rehearsed := *r
	rehearsed.dryRunDir = dir
	objects := quoteAlternate(filepath.Join(r.CommonDir, "objects"))
	if more, is := proc.LookupEnv(r.env, "GIT_ALTERNATE_OBJECT_DIRECTORIES"); is { // set in the repository of a merger
		objects += ":" + more
	}
	rehearsed.env = append(slices.Clone(r.env),
		"GIT_OBJECT_DIRECTORY="+filepath.Join(dir, "objects"),
		"GIT_ALTERNATE_OBJECT_DIRECTORIES="+objects)
	return &rehearsed
}

// quoteAlternate quotes a path for the colon-separated list in GIT_ALTERNATE_OBJECT_DIRECTORIES.
func quoteAlternate(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path) + `"`
}
