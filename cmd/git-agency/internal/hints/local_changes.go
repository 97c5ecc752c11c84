package hints

import (
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// mostStashed is the number of paths that a command to paste may name.
const mostStashed = 20

// stashLandedHints says how to land files that the user's worktree already has, or had before the agent changed them, as
// after "start --with-changes". The stash has exactly these files.
func stashLandedHints(e *gitagency.LocalChangesError, retry Retry) []string {
	inTree := "git -C " + quote.Shell(e.Worktree) + " "
	stash := inTree + "--literal-pathspecs stash push -u --"
	for _, path := range e.Paths {
		stash += " " + quote.Shell(path)
	}
	first := "they already are as they would land; stash them, land, and drop the stash:"
	if !e.AlreadyLanded {
		first = "the sandbox started with them, and its work was made on top of them; stash them, land, and drop the stash if the landed files are right:"
	}
	return []string{
		first,
		"  " + stash,
		"  " + retry.Command(""),
		"  " + inTree + "stash drop",
	}
}
