package merge

import (
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// walkLimit ends a walk over the paths of a tree with a *readlimit.ExceededError. Some trees of a few bytes each, of which
// every one has the next under two names, have more paths than any walk can visit.
type walkLimit struct {
	reading readlimit.Reading
	used    int64 // bytes that the paths take in memory
}

func newWalkLimit(r *git.Repo, what string) *walkLimit { return &walkLimit{reading: r.ReadingOf(what)} }

// add counts a path that the walk visits.
func (l *walkLimit) add(path string) error {
	const perPath = 256 // bytes, for what is kept of a path besides its name
	if l.used += perPath + int64(len(path)); l.reading.Memory > 0 && l.used > l.reading.Memory {
		return l.reading.Exceeded(l.reading.What, readlimit.Memory)
	}
	return nil
}
