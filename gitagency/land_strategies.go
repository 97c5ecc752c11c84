package gitagency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// landStrategy is one way to put a landing into history.
type strategy struct {
	name string
	make func(*landing, context.Context, signatures) (string, error)
}

const rebaseStrategy = "rebase"

// landStrategies lists all strategies, the default first.
func strategies() []strategy {
	return []strategy{
		{"merge", (*landing).merge},         // one merge commit, with the sandbox's commits as second parent
		{"squash", (*landing).squash},       // one commit with all changes
		{rebaseStrategy, (*landing).rebase}, // the sandbox's commits replayed on top of the branch
	}
}

// Strategies lists the names of the landing strategies, the default first.
func Strategies() []string {
	var names []string
	for _, s := range strategies() {
		names = append(names, s.name)
	}
	return names
}

func checkStrategy(name string) error {
	if !slices.Contains(Strategies(), name) {
		return &InvalidError{What: "strategy", Value: name, Want: strings.Join(Strategies(), ", ")}
	}
	return nil
}

// configuredStrategy returns agency.land.strategy, else the default.
func (r *Repository) landStrategy() (string, error) {
	setting, _ := r.git.Config.Last(canonical(strategyKey))
	name := cmp.Or(setting.Value, Strategies()[0])
	err := checkStrategy(name)
	var invalid *InvalidError
	if errors.As(err, &invalid) {
		return "", misconfigured(strategyKey, setting, invalid.Want)
	}
	return name, err
}

// signsLandings returns agency.land.sign.
func (r *Repository) signsLandings() (bool, error) { return r.truth(signKey, false) }

type signatures struct{ author, committer git.Signature }

// makeCommit creates the new commit of the integration branch, which no ref points at yet. It creates none if the branch
// has all of the work.
func (l *landing) make(ctx context.Context) error {
	if len(l.commits) == 0 {
		return nil
	}
	var by signatures
	var err error
	if by.author, by.committer, err = l.r.landingIdentity(ctx); err != nil {
		return err
	}
	l.made = len(l.commits)
	i := slices.Index(Strategies(), l.req.Strategy)
	if l.result, err = strategies()[i].make(l, ctx, by); err != nil || l.result == "" {
		return err
	}
	return l.checkTree(ctx, l.result) // the merge of two valid trees may be invalid
}

// mergedTree merges the tip into the integration branch and returns the tree; empty if the branch's tree would not change.
func (l *landing) merged(ctx context.Context) (string, error) {
	merged, err := l.merger.Merge(ctx, git.Merging{Ours: l.target.at, Theirs: l.tip})
	if err != nil {
		return "", err
	}
	if len(merged.Conflicts) > 0 {
		return "", &ConflictsError{ID: l.s.ID, Conflicts: conflicts(merged.Conflicts)}
	}
	if has, err := l.merger.SameTree(ctx, merged.Tree, l.target.at); err != nil || has {
		return "", err
	}
	return merged.Tree, nil
}

// makeMergeCommit creates a merge commit of the integration branch and the tip.
func (l *landing) merge(ctx context.Context, by signatures) (string, error) {
	tree, err := l.merged(ctx)
	if err != nil || tree == "" {
		return "", err
	}
	return l.commit(ctx, git.NewCommit{Tree: tree, Parents: []string{l.target.at, l.tip}, Message: l.signed(cmp.Or(l.ownMessage(), l.summary()+l.list()))}, by)
}

// makeSquashCommit creates one commit with all changes. A single commit that is not a merge keeps its message.
func (l *landing) squash(ctx context.Context, by signatures) (string, error) {
	tree, err := l.merged(ctx)
	if err != nil || tree == "" {
		return "", err
	}
	message := l.summary() + l.list()
	if own := slices.DeleteFunc(slices.Clone(l.commits), func(c git.Commit) bool { return len(c.Parents) > 1 }); len(own) == 1 {
		message = cmp.Or(strings.TrimSpace(own[0].Message), message)
	}
	return l.commit(ctx, git.NewCommit{Tree: tree, Parents: []string{l.target.at}, Message: l.signed(cmp.Or(l.ownMessage(), message))}, by)
}

// givenMessage returns the message that the caller wants for the merge or squash commit; empty if none was given.
func (l *landing) ownMessage() string {
	if l.req.CommitAll { // then Message belongs to the sandbox's last commit
		return ""
	}
	return l.req.Message
}

// rebaseCommits replays the commits on top of the integration branch, and returns the last.
func (l *landing) rebase(ctx context.Context, by signatures) (string, error) {
	sign, err := l.r.signsLandings()
	if err != nil {
		return "", err
	}
	replayed, err := l.merger.Replay(ctx, git.Replaying{Upstream: l.target.at, Tip: l.tip, Onto: l.target.at, Committer: by.committer, Message: l.signed, Sign: sign})
	if err != nil {
		return "", err
	}
	if len(replayed.Conflicts) > 0 {
		return "", &ConflictsError{ID: l.s.ID, At: replayed.Stopped, Conflicts: conflicts(replayed.Conflicts)}
	}
	if replayed.Tip == l.target.at {
		return "", nil
	}
	l.made = len(replayed.Commits)
	return replayed.Tip, nil
}

func (l *landing) commit(ctx context.Context, c git.NewCommit, by signatures) (commit string, err error) {
	if c.Sign, err = l.r.signsLandings(); err != nil {
		return "", err
	}
	c.Author, c.Committer = by.author, by.committer
	return l.merger.Commit(ctx, c)
}

// commitList returns the subjects of the commits that land, for the commit message.
func (l *landing) list() string {
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

// Trailers of the commits that landings and unlands create.
const (
	invocationTrailer = "Agency-Invocation"
	baseTrailer       = "Agency-Base"
	runnerTrailer     = "Agency-Runner"
	tipTrailer        = "Agency-Tip"
	undoesTrailer     = "Agency-Undoes"
)

// addTrailers adds the Agency trailers to a commit message. It replaces trailers of the same name: an agent could have
// written them.
func (l *landing) signed(message string) string {
	m := l.entry.Record
	return git.WithTrailers(message, [][2]string{
		{invocationTrailer, m.InvocationID},
		{baseTrailer, m.BaseCommit},
		{tipTrailer, l.tip},
		{runnerTrailer, cmp.Or(m.Runner, "none")},
	})
}
