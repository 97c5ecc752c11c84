package git

import (
	"fmt"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// ForEveryWorktreeSetting tries something for every way, typed in every place, whether or not what is set is trusted.
func ForEveryWorktreeSetting(t *testing.T, try func(t *testing.T, o *gittest.Worktrees, repo *Repo, trusted bool)) {
	t.Helper()
	for _, way := range gittest.WorktreeSettings {
		for i, at := range []string{"other", "one"} {
			for _, trusted := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/in %s/trusted=%t", way.Name, at, trusted), func(t *testing.T) {
					t.Parallel()
					o := gittest.NewWorktrees(t, way.Set)
					try(t, o, OpenRepoIn(o.Lab, []string{o.Other, o.One}[i]), trusted)
				})
			}
		}
	}
}
