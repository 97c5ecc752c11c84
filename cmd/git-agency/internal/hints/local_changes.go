package hints

import (
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// mostStashed is the number of paths that a command to paste may name.
const mostStashed = 20

// stashLandedHints says how to land files that the user's worktree already has, as after "start --with-changes". The stash
// has exactly these files, so that dropping it loses nothing.
func stashLandedHints(e *gitagency.LocalChangesError, retry Retry) []string {
	inTree := "git -C " + quote.Shell(e.Worktree) + " "
	stash := inTree + "--literal-pathspecs stash push -u --"
	for _, path := range e.Paths {
		stash += " " + quote.Shell(path)
	}
	return []string{
		"they already are as they would land; stash them, land, and drop the stash:",
		"  " + stash,
		"  " + retry.Command(""),
		"  " + inTree + "stash drop",
	}
}
