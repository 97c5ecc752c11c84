package creation

import (
	"context"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// largeIndex is the size of the index of an integration worktree above which no uncommitted work is counted for an overlay. An
// index of this size has about 5,000 files; to look at each of them takes longer than to make the overlay.
const largeIndex = 512 << 10

// beginCountLeftBehind begins to count the uncommitted work in the integration worktree that the sandbox of a plan will not have,
// though it starts from the same branch. Whether git may read it is decided before the sandbox is on record. count returns the
// number of paths, given the changeset that the sandbox got and the tree of its base; wait waits for what was begun.
func beginCountLeftBehind(ctx context.Context, r *core.Repository, plan Plan) (count func(changeset, baseTree string) (int, error), wait func()) {
	left, err := findLeftBehind(r, plan)
	switch {
	case err != nil:
		return func(string, string) (int, error) { return 0, err }, func() {}
	case plan.prims.Changeset != settings.ChangesetWorktree && left.indexSize() > largeIndex: // whether auto makes an overlay is known later
		return func(changeset, _ string) (int, error) {
			if changeset == settings.ChangesetOverlay {
				return 0, nil
			}
			return left.countAll(ctx)
		}, func() {}
	}
	type found struct {
		cleanTree string // if nothing is changed or untracked: the tree of the index
		count     int
	}
	wanted := proc.Async(func() (f found, err error) {
		if f.cleanTree = left.cleanTree(ctx); f.cleanTree == "" {
			f.count, err = left.countAll(ctx)
		}
		return f, err
	})
	return func(_, baseTree string) (int, error) {
		f, err := wanted()
		if f.cleanTree != "" && f.cleanTree != baseTree { // staged, or another commit is checked out
			return left.countAll(ctx)
		}
		return f.count, err
	}, func() { _, _ = wanted() }
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

// cleanTree returns the tree of the index if, by the stat data of all files, nothing is changed or untracked. It is empty where
// only git can tell.
func (c uncommittedWork) cleanTree(ctx context.Context) string {
	if c.repo == nil || c.repo.ConfigVariesByWorktree() {
		return ""
	}
	x, err := c.repo.ReadEditableIndex(ctx, c.run.GitDir, c.repo.ObjectFormat())
	if err != nil {
		return ""
	}
	clean, err := status.IsClean(ctx, c.repo, c.tree, x.File, x.ModTime)
	if err != nil || !clean {
		return ""
	}
	return hex.EncodeToString(x.TreeID())
}

// countAll returns the number of changed, staged and untracked files; an untracked directory counts as one.
func (c uncommittedWork) countAll(ctx context.Context) (int, error) {
	return c.countNames(ctx, "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=all")
}

// countNames counts the lines of a git that ends them with NUL; none for the zero value.
func (c uncommittedWork) countNames(ctx context.Context, args ...string) (int, error) {
	if c.repo == nil {
		return 0, nil
	}
	run := c.run
	run.Reading = c.repo.CheckoutReading("the uncommitted work") // an agent may have written the ignore rules
	out, err := c.repo.RunRead(ctx, run, args...)
	return strings.Count(string(out), "\x00"), err
}
