package snapshot

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// DryRunCapture returns what Capture would return, and refuses what it would refuse, without changing anything: it
// runs Capture with a temporary object directory, which it removes. So the returned commit does not exist, unless it
// existed before. Only the mtimes of existing objects that git meets again are new. A worktree that could be read
// only after a chmod is refused too.
func DryRunCapture(ctx context.Context, r *git.Repo, s git.WorktreeSpec) (got CaptureResult, err error) {
	err = dryRun(r, func(repo *git.Repo) error {
		got, err = Capture(ctx, repo, s)
		return err
	})
	return got, err
}

// HoldsWorktree reports whether a commit, with everything reachable from it, holds all that Capture would find in a
// worktree. It changes nothing.
func HoldsWorktree(ctx context.Context, r *git.Repo, commit string, s git.WorktreeSpec) (all bool, err error) {
	err = dryRun(r, func(repo *git.Repo) error {
		got, err := Capture(ctx, repo, s)
		if err != nil {
			return err
		}
		all, err = Covers(ctx, repo, commit, got.Commit)
		return err
	})
	return all, err
}

// dryRun calls do with a repository that reads all objects, and writes new ones to a temporary directory.
func dryRun(r *git.Repo, do func(repo *git.Repo) error) (err error) {
	scratch, err := git.MakeTempDir()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.Remove()) }()
	if err := os.Mkdir(filepath.Join(scratch.Path, "objects"), 0o700); err != nil {
		return err
	}
	return do(r.DryRunRepo(scratch.Path))
}
