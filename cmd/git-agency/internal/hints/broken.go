package hints

import (
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

func brokenHints(b *gitagency.BrokenError) []string {
	switch {
	case b.Unlinked:
		return []string{"it is now at " + quote.Path(b.MovedTo) + "; this repairs git's entry of the worktree, as 'git worktree repair' does, and corrects the record: git -C " + quote.Shell(b.MovedTo) + " agency doctor --fix " + b.ID}
	case b.MovedTo != "":
		return []string{"it is now at " + quote.Path(b.MovedTo) + "; this corrects the record: git agency doctor --fix " + b.ID}
	case b.RemovedTree != "":
		return removedTreeHints(b)
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

// removedTreeHints says how to archive an adopted worktree that does not exist any more, and how to have it back.
func removedTreeHints(b *gitagency.BrokenError) []string {
	tree, branch := quote.Shell(b.RemovedTree), "<branch>"
	if b.Branch != "" {
		branch = quote.Shell(b.Branch)
	}
	lines, add := []string{"if it was removed for good, archive it; its branch stays: git agency doctor --fix " + b.ID}, "git worktree add "
	if b.Registered {
		lines, add = append(lines, "if it was moved: git -C <new path> agency doctor --fix "+b.ID), add+"-f "
	}
	if b.Locked { // git wants the flag twice
		add += "-f "
	}
	return append(lines, "to have it back: "+add+tree+" "+branch+" && git agency worktree adopt "+tree)
}
