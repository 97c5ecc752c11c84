package snapshots

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
)

// Info is a snapshot with its metadata.
type Info struct {
	Invocation string    `json:"invocation_id"`
	ID         string    `json:"snapshot"` // full commit id
	Ref        string    `json:"ref"`
	Number     int       `json:"number"`
	Message    string    `json:"message"`
	TakenAt    time.Time `json:"taken_at"`
	Tool       string    `json:"tool_version"` // version of git-agency that took it; empty when unknown
	Parent     string    `json:"parent"`       // previous snapshot, else the commit that its sandbox started from
	Tree       string    `json:"tree"`         // tree of the content on disk
	Base       string    `json:"base"`         // commit that its sandbox started from
	Head       string    `json:"head"`         // commit at HEAD
	Index      string    `json:"index"`        // tree of the index; empty when none could be written, as during a merge

	// Difference from its parent, as "git diff --shortstat" counts.
	Files      int  `json:"files"`
	Insertions int  `json:"insertions"`
	Deletions  int  `json:"deletions"`
	Counted    bool `json:"counted"` // false: unknown, and the numbers are 0
}

// Name returns the name for users, "<invocation>/<number>".
func (s Info) Name() string {
	return Snapshot{Invocation: s.Invocation, Number: s.Number}.Name()
}

// Subject returns the first line of the message.
func (s Info) Subject() string {
	line, _, _ := strings.Cut(s.Message, "\n")
	return line
}

// DescribeRequest selects the snapshots to list.
type DescribeRequest struct {
	Invocation string // id or unique prefix of an invocation, which may have ended; empty: all
	SkipCounts bool   // do not count differences from the parent, which takes the longest
}

// Describe lists snapshots by invocation and number, the newest last. The number of git processes does not depend on
// the number of snapshots.
func Describe(ctx context.Context, r *core.Repository, req DescribeRequest) ([]Info, error) {
	var invocations []string
	if req.Invocation != "" {
		id, err := resolveInvocation(ctx, r, req.Invocation)
		if err != nil {
			return nil, err
		}
		invocations = append(invocations, id)
	}
	all, err := List(ctx, r.Git, invocations...)
	if err != nil {
		return nil, err
	}
	commits := make([]string, len(all))
	for i, s := range all {
		commits[i] = s.ID
	}
	states, err := snapshot.ReadStates(ctx, r.Git, commits...)
	if err != nil {
		return nil, err
	}
	taken := make([]Info, len(all))
	against := map[string]string{}
	for i, s := range all {
		taken[i] = newInfo(s, states[i])
		against[s.ID] = taken[i].Parent
	}
	if req.SkipCounts {
		return taken, nil
	}
	counted, err := merge.DiffStats(ctx, r.Git, against)
	if fault.Is[*git.Error](err) || fault.Is[*fault.ReadLimitError](err) { // the rest of the listing is useful without the counts
		r.Warn("files and lines cannot be counted: %v", err)
		return taken, nil
	}
	if err != nil {
		return nil, err
	}
	for i, s := range taken {
		changes, known := counted[s.ID]
		taken[i].Files, taken[i].Insertions, taken[i].Deletions, taken[i].Counted = changes.Files, changes.Insertions, changes.Deletions, known
	}
	return taken, nil
}

func newInfo(s Snapshot, state snapshot.State) Info {
	t := Info{
		Invocation: s.Invocation, ID: s.ID, Ref: s.Ref, Number: s.Number,
		Message: state.Message, TakenAt: state.Time.UTC(), Tool: state.ToolVersion,
		Tree: state.Tree, Base: state.Base, Head: state.Head, Index: state.IndexTree,
	}
	if len(state.Parents) > 0 {
		t.Parent = state.Parents[0]
	}
	return t
}

// resolveInvocation returns the id of an invocation that has a record, or at least a snapshot.
func resolveInvocation(ctx context.Context, r *core.Repository, query string) (string, error) {
	inv, err := r.Invocation(query)
	if !fault.Is[*fault.NotFoundError](err) && !fault.Is[*fault.MovedRepositoryError](err) {
		return inv.ID, err
	}
	all, listErr := List(ctx, r.Git)
	if listErr != nil {
		return "", listErr
	}
	found := map[string]bool{}
	for _, s := range all {
		if s.Invocation == query {
			return query, nil
		}
		if ids.Matches(s.Invocation, query) {
			found[s.Invocation] = true
		}
	}
	switch matches := slices.Sorted(maps.Keys(found)); len(matches) {
	case 0:
		return "", err
	case 1:
		return matches[0], nil
	default:
		return "", &fault.AmbiguousError{Kind: "invocation", Query: query, Matches: matches}
	}
}
