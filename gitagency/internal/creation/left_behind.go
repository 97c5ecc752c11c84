package creation

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// largeIndex is the size of the index of an integration worktree above which no uncommitted work is counted for an overlay. An
// index of this size has about 10,000 files; to look at each of them takes longer than to make the overlay.
const largeIndex = 1 << 20

// beginCountLeftBehind begins to count the uncommitted work in the integration worktree that the sandbox of a plan will not have,
// though it starts from the same branch. Whether git may read it is decided before the sandbox is on record. count returns the
// number of paths, given the changeset that the sandbox got; wait waits for the git that was begun.
func beginCountLeftBehind(ctx context.Context, r *core.Repository, plan Plan) (count func(changeset string) (int, error), wait func()) {
	left, err := findLeftBehind(r, plan)
	switch {
	case err != nil:
		return func(string) (int, error) { return 0, err }, func() {}
	case plan.prims.Changeset == settings.ChangesetWorktree:
		untracked := proc.Async(func() (int, error) { return left.countUntracked(ctx) })
		return func(string) (int, error) {
			n, err := untracked()
			if err != nil || *plan.allCopied {
				return n, err
			}
			changed, err := left.countChanged(ctx)
			return n + changed, err
		}, func() { _, _ = untracked() }
	case left.indexSize() > largeIndex: // whether auto makes an overlay is known later
		return func(changeset string) (int, error) {
			if changeset == settings.ChangesetOverlay {
				return 0, nil
			}
			return left.countAll(ctx)
		}, func() {}
	}
	all := proc.Async(func() (int, error) { return left.countAll(ctx) })
	return func(string) (int, error) { return all() }, func() { _, _ = all() }
}

// findLeftBehind returns the uncommitted work in the integration worktree that a sandbox will not have; the zero value for none.
func findLeftBehind(r *core.Repository, plan Plan) (uncommittedWork, error) {
	if plan.WithChanges || plan.From != "" || plan.FromSnapshot != "" {
		return uncommittedWork{}, nil
	}
	wt, err := r.WorktreeByID(plan.worktreeID)
	if err != nil {
		return uncommittedWork{}, err
	}
	left, err := openChanges(r, r.Git, wt)
	if err != nil {
		return uncommittedWork{}, err
	}
	return left, nil
}

// indexSize returns the size of the index file; 0 if there is none.
func (c uncommittedWork) indexSize() int64 {
	if c.repo == nil {
		return 0
	}
	fi, err := os.Stat(filepath.Join(c.run.GitDir, "index"))
	if err != nil {
		return 0 // git says why it cannot be read
	}
	return fi.Size()
}

// countAll returns the number of changed, staged and untracked files; an untracked directory counts as one.
func (c uncommittedWork) countAll(ctx context.Context) (int, error) {
	return c.countStatus(ctx, "normal")
}

// countChanged returns the number of changed and staged files.
func (c uncommittedWork) countChanged(ctx context.Context) (int, error) {
	return c.countStatus(ctx, "no")
}

func (c uncommittedWork) countStatus(ctx context.Context, untrackedFiles string) (int, error) {
	return c.countNames(ctx, "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files="+untrackedFiles, "--ignore-submodules=all")
}

// countUntracked returns the number of untracked files; an untracked directory counts as one.
func (c uncommittedWork) countUntracked(ctx context.Context) (int, error) {
	return c.countNames(ctx, "ls-files", "-z", "--others", "--exclude-standard", "--directory", "--no-empty-directory")
}

// countNames counts the lines of a git that ends them with NUL; none for the zero value.
func (c uncommittedWork) countNames(ctx context.Context, args ...string) (int, error) {
	if c.repo == nil {
		return 0, nil
	}
	out, err := c.repo.RunRead(ctx, c.run, args...)
	return strings.Count(string(out), "\x00"), err
}
