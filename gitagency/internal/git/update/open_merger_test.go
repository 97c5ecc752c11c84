package update

import (
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// openMerger returns a Merger of the lab's repository, which is closed when the test ends.
func openMerger(l *gittest.Fixture) *merge.Merger {
	l.T.Helper()
	m, err := merge.NewMerger(repotest.OpenRepo(l), l.Git("rev-parse", "HEAD"))
	l.Must(err)
	l.T.Cleanup(func() { l.Must(m.Close()) })
	return m
}

func mergeCommits(l *gittest.Fixture, m *merge.Merger, what merge.Request) merge.Result {
	l.T.Helper()
	merged, err := m.Merge(l.T.Context(), what)
	l.Must(err)
	return merged
}
