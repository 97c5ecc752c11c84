package git

import (
	"fmt"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// ForEveryWorktreeSetting runs try as a subtest for every way of configuring a worktree, with a repository opened from
// each linked worktree and for both values of trusted.
func ForEveryWorktreeSetting(t *testing.T, try func(t *testing.T, o *gittest.Worktrees, repo *Repo, trusted bool)) {
	t.Helper()
	for _, setting := range gittest.WorktreeSettings {
		for i, at := range []string{"other", "one"} {
			for _, trusted := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/from %s/trusted=%t", setting.Name, at, trusted), func(t *testing.T) {
					t.Parallel()
					o := gittest.NewWorktrees(t, setting.Set)
					try(t, o, OpenRepoIn(o.Fixture, []string{o.Other, o.One}[i]), trusted)
				})
			}
		}
	}
}
