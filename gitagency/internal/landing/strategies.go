package landing

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// landStrategy is one way to put a landing into history.
type landStrategy struct {
	name       string
	makeCommit func(*landAttempt, context.Context, signatures) (string, error)
}

// landStrategies lists all strategies, the default first.
func landStrategies() []landStrategy {
	return []landStrategy{
		{settings.MergeStrategy, (*landAttempt).makeMergeCommit},
		{settings.SquashStrategy, (*landAttempt).makeSquashCommit},
		{settings.RebaseStrategy, (*landAttempt).rebaseCommits},
	}
}

type signatures struct{ author, committer object.Signature }

// makeCommit creates the new commit of the integration branch, which no ref points at yet. It creates none if the branch
// has all of the work.
func (l *landAttempt) makeCommit(ctx context.Context) error {
	if len(l.commits) == 0 {
		return nil
	}
	var by signatures
	var err error
	if by.author, by.committer, err = l.r.LandingSignatures(ctx); err != nil {
		return err
	}
	if l.trailers, err = l.r.Settings.LandingTrailers(); err != nil {
		return err
	}
	l.commitCount = len(l.commits)
	i := slices.Index(settings.Strategies(), l.req.Strategy)
	if l.newTip, err = landStrategies()[i].makeCommit(l, ctx, by); err != nil || l.newTip == "" {
		return err
	}
	return l.fsckTree(ctx, l.newTip) // the merge of two valid trees may be invalid
}

// mergedTree merges the tip into the integration branch and returns the tree; empty if the branch's tree would not change.
func (l *landAttempt) mergedTree(ctx context.Context) (string, error) {
	merged, err := l.merger.Merge(ctx, merge.Request{Ours: l.target.Commit, Theirs: l.tip})
	if err != nil {
		return "", err
	}
	if len(merged.Conflicts) > 0 {
		return "", &fault.ConflictsError{ID: l.s.ID, Conflicts: fault.ConvertConflicts(merged.Conflicts)}
	}
	if has, err := l.merger.SameTree(ctx, merged.Tree, l.target.Commit); err != nil || has {
		return "", err
	}
	return merged.Tree, nil
}

// makeMergeCommit creates a merge commit of the integration branch and the tip.
func (l *landAttempt) makeMergeCommit(ctx context.Context, by signatures) (string, error) {
	tree, err := l.mergedTree(ctx)
	if err != nil || tree == "" {
		return "", err
	}
	return l.createCommit(ctx, merge.CommitRequest{Tree: tree, Parents: []string{l.target.Commit, l.tip}, Message: l.addTrailers(cmp.Or(l.givenMessage(), l.subjectLine()+l.commitList()))}, by)
}

// makeSquashCommit creates one commit with all changes. A single commit that is not a merge keeps its message.
func (l *landAttempt) makeSquashCommit(ctx context.Context, by signatures) (string, error) {
	tree, err := l.mergedTree(ctx)
	if err != nil || tree == "" {
		return "", err
	}
	message := l.subjectLine() + l.commitList()
	if own := slices.DeleteFunc(slices.Clone(l.commits), func(c merge.RangeCommit) bool { return len(c.Parents) > 1 }); len(own) == 1 {
		message = cmp.Or(strings.TrimSpace(own[0].Message), message)
	}
	return l.createCommit(ctx, merge.CommitRequest{Tree: tree, Parents: []string{l.target.Commit}, Message: l.addTrailers(cmp.Or(l.givenMessage(), message))}, by)
}

// givenMessage returns the message that the caller wants for the merge or squash commit; empty if none was given.
func (l *landAttempt) givenMessage() string {
	if l.req.CommitAll { // then Message belongs to the sandbox's last commit
		return ""
	}
	return l.req.Message
}

// rebaseCommits replays the commits on top of the integration branch, and returns the last.
func (l *landAttempt) rebaseCommits(ctx context.Context, by signatures) (string, error) {
	sign, err := l.r.Settings.SignsLandings()
	if err != nil {
		return "", err
	}
	replayed, err := l.merger.Replay(ctx, merge.ReplayRequest{Upstream: l.target.Commit, Tip: l.tip, Onto: l.target.Commit, Committer: by.committer, Message: l.addTrailers, Sign: sign})
	if err != nil {
		return "", err
	}
	if len(replayed.Conflicts) > 0 {
		return "", &fault.ConflictsError{ID: l.s.ID, StoppedAt: replayed.StoppedAt, Conflicts: fault.ConvertConflicts(replayed.Conflicts)}
	}
	if replayed.Tip == l.target.Commit {
		return "", nil
	}
	l.commitCount = len(replayed.Commits)
	return replayed.Tip, nil
}

func (l *landAttempt) createCommit(ctx context.Context, c merge.CommitRequest, by signatures) (commit string, err error) {
	if c.Sign, err = l.r.Settings.SignsLandings(); err != nil {
		return "", err
	}
	c.Author, c.Committer = by.author, by.committer
	return l.merger.CreateCommit(ctx, c)
}

// commitList returns the subjects of the commits that land, for the commit message.
func (l *landAttempt) commitList() string {
	const most = 50
	var text strings.Builder
	for i, c := range l.commits {
		if i == most {
			fmt.Fprintf(&text, "* … and %d more\n", len(l.commits)-most)
			break
		}
		fmt.Fprintf(&text, "* %s\n", cmp.Or(c.Subject(), c.OID))
	}
	return "\n\n" + text.String()
}

func (l *landAttempt) addTrailers(message string) string {
	if l.finishes != nil { // the commits of its landings have them
		return message
	}
	return withLandingTrailers(message, l.trailers, l.entry.Record, l.tip)
}
