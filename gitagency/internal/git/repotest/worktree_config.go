package repotest

import (
	"fmt"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// ForEveryWorktreeSetting runs try as a subtest for every way of configuring a worktree, with a repository opened from
// each linked worktree and for both values of trusted; with -short each way in one of these four combinations.
func ForEveryWorktreeSetting(t *testing.T, try func(t *testing.T, o *gittest.Worktrees, repo *git.Repo, trusted bool)) {
	t.Helper()
	for n, setting := range gittest.WorktreeSettings {
		for i, at := range []string{"other", "one"} {
			for _, trusted := range []bool{true, false} {
				if testing.Short() && (n%2 != i || trusted != (n/2%2 == 0)) {
					continue
				}
				t.Run(fmt.Sprintf("%s/from %s/trusted=%t", setting.Name, at, trusted), func(t *testing.T) {
					t.Parallel()
					o := gittest.NewWorktrees(t, setting.Set)
					try(t, o, OpenRepoIn(o.Fixture, []string{o.Other, o.One}[i]), trusted)
				})
			}
		}
	}
}
