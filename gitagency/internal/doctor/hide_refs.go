package doctor

import (
	"context"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// The setting that keeps the refs of git-agency out of the decorations of git log.
const (
	HideRefsKey   = "log.excludeDecoration"
	HideRefsValue = "refs/agency/*"
)

// HideRefs adds HideRefsValue to HideRefsKey in the repository's own configuration, once, or removes it with undo. Other
// values of the key stay. It reports whether something changed, or would in a dry run.
func HideRefs(ctx context.Context, r *core.Repository, undo, dryRun bool) (changed bool, err error) {
	repo, unlock, err := r.LockAndRecover(ctx) // two of us would add it twice
	if err != nil {
		return false, err
	}
	defer unlock()
	out, err := repo.RunRead(ctx, git.RunOptions{}, "config", "--local", "-z", "--get-all", HideRefsKey)
	if err != nil && !git.ExitedWith(err, 1) { // 1: the key is not set
		return false, err
	}
	isSet := slices.Contains(strings.Split(string(out), "\x00"), HideRefsValue)
	if changes := isSet == undo; !changes || dryRun {
		return changes, nil
	}
	args := []string{"config", "--local", "--add", HideRefsKey, HideRefsValue}
	if undo {
		args = []string{"config", "--local", "--fixed-value", "--unset-all", HideRefsKey, HideRefsValue}
	}
	_, err = repo.RunWrite(ctx, git.RunOptions{}, args...)
	return err == nil, err
}
