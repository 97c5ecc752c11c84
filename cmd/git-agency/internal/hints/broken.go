package hints

import (
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

func brokenHints(b *gitagency.BrokenError) []string {
	if b.RemovedTree != "" {
		tree, branch := quote.Shell(b.RemovedTree), "<branch>"
		if b.Branch != "" {
			branch = quote.Shell(b.Branch)
		}
		return []string{
			"if it was removed for good, archive it; its branch stays: git agency doctor --fix " + b.ID,
			"to have it back: git worktree add " + tree + " " + branch + " && git agency worktree adopt " + tree,
		}
	}
	list := "git agency ls --all"
	if b.Kind == "worktree" {
		list = "git agency worktree ls --all"
	}
	return []string{
		"'" + list + "' shows every broken one",
		"'git agency doctor' says what is wrong with each, 'git agency doctor --fix " + b.ID + "' repairs this one",
	}
}
