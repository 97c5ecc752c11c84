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

// strategy is how a landing looks in history.
type strategy struct {
	name string
	make func(*landing, context.Context, signatures) (string, error)
}

const rebaseStrategy = "rebase"

// strategies are those there are, the default first.
func strategies() []strategy {
	return []strategy{
		{"merge", (*landing).merge},         // one merge commit, with the sandbox's own commits behind it
		{"squash", (*landing).squash},       // one commit with all of it
		{rebaseStrategy, (*landing).rebase}, // each of its commits anew, on top of the others
	}
}

// Strategies lists how a landing can look in history, the default first.
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

// landStrategy is agency.land.strategy, else the default.
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

// signsLandings is agency.land.sign.
func (r *Repository) signsLandings() (bool, error) { return r.truth(signKey, false) }

type signatures struct{ author, committer git.Signature }

// make makes the commit that the integration branch is to go to, which nobody sees yet. There is none where that branch
// has all of it.
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
	return l.checkTree(ctx, l.result) // a merge of two sound trees need not be
}

// merged is the tree of both, unless it is that of the integration branch: then it is empty.
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

func (l *landing) merge(ctx context.Context, by signatures) (string, error) {
	tree, err := l.merged(ctx)
	if err != nil || tree == "" {
		return "", err
	}
	return l.commit(ctx, git.NewCommit{Tree: tree, Parents: []string{l.target.at, l.tip}, Message: l.signed(cmp.Or(l.ownMessage(), l.summary()+l.list()))}, by)
}

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

// ownMessage is what whoever lands wants the landing to say; empty when that was not said.
func (l *landing) ownMessage() string {
	if l.req.CommitAll { // then it is that of the sandbox's last commit
		return ""
	}
	return l.req.Message
}

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

// list names the commits that land.
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

// The trailers of what has landed.
const (
	invocationTrailer = "Agency-Invocation"
	baseTrailer       = "Agency-Base"
	runnerTrailer     = "Agency-Runner"
	tipTrailer        = "Agency-Tip"
	undoesTrailer     = "Agency-Undoes"
)

// signed is a message that says whose work it is. What it said of that before was said by who does not know.
func (l *landing) signed(message string) string {
	m := l.entry.Record
	return git.WithTrailers(message, [][2]string{
		{invocationTrailer, m.InvocationID},
		{baseTrailer, m.BaseCommit},
		{tipTrailer, l.tip},
		{runnerTrailer, cmp.Or(m.Runner, "none")},
	})
}
