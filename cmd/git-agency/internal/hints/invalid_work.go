package hints

import (
	"path"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// gitAtWork returns the start of a git command in the tree that has the work: that of a sandbox, or of the integration
// worktree that is to be finished.
func gitAtWork(e *gitagency.StateError) string {
	if e.Other != "" {
		return "git -C " + quote.Shell(e.Other) + " "
	}
	return "git agency exec " + e.ID + " -- git "
}

// invalidWorkHints returns the commands that replace the commits of the sandbox or worktree by one commit without the object
// that must not land. A later commit that removes it is not enough, since the history would land too.
func invalidWorkHints(e *gitagency.StateError, _ Retry) []string {
	inside, holder := gitAtWork(e), "sandbox"
	if e.Name != "" {
		holder = "worktree"
	}
	lines := []string{"no commit of the " + holder + " may contain it; this replaces them by one commit of what is staged, without it:", "  " + inside + "reset --soft " + e.Commit}
	pathspec := quote.Shell(":(top,literal)" + e.Path)
	switch {
	case e.Path == "" || strings.HasSuffix(e.Path, "/") || slices.Contains(strings.Split(e.Path, "/"), ".."):
		// Git writes a malformed directory correctly when it commits again, and a path with ".." cannot be in the index.
	case slices.Contains([]string{".gitattributes", ".gitignore", ".gitmodules"}, path.Base(e.Path)):
		lines = append(lines, "  "+inside+"restore --source="+e.Commit+" --staged --worktree "+pathspec) // removes a new one
	default:
		lines = append(lines, "  "+inside+"rm -r -f -q --cached --ignore-unmatch "+pathspec)
	}
	return append(lines, "  "+inside+"commit -m '<message>'")
}
