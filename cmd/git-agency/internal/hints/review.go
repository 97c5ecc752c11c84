package hints

import "github.com/git-agency/git-agency/gitagency"

// notInReviewHints says what to do about work that cannot be rejected, by its landing state.
func notInReviewHints(e *gitagency.StateError, _ Retry) []string {
	switch e.Name {
	case gitagency.StateLanded:
		return []string{"to revert its landing: git agency unland " + e.ID}
	case gitagency.StateDiscarded:
		return []string{"to make a sandbox of it again: git agency restore " + e.ID}
	}
	return []string{
		"only submitted work can be rejected; 'git agency discard " + e.ID + "' ends the sandbox",
		"to have the agent of a run change its work: git agency resume " + e.ID + " -p '<what to change>'",
	}
}
