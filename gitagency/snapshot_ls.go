package gitagency

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// TakenSnapshot is a snapshot with what it says of itself.
type TakenSnapshot struct {
	Invocation string    `json:"invocation_id"`
	ID         string    `json:"snapshot"` // the full id of the commit
	Ref        string    `json:"ref"`
	Number     int       `json:"number"`
	Message    string    `json:"message"`
	TakenAt    time.Time `json:"taken_at"`
	Tool       string    `json:"tool_version"` // that took it; empty where that is not said
	Parent     string    `json:"parent"`       // the snapshot before it, else the commit its sandbox started from
	Tree       string    `json:"tree"`         // what was on disk
	Base       string    `json:"base"`         // the commit its sandbox started from
	Head       string    `json:"head"`         // the commit that was checked out
	Index      string    `json:"index"`        // the tree that was staged; empty when there was none, as in the middle of a merge

	// How much it differs from its parent, as "git diff --shortstat" counts.
	Files      int  `json:"files"`
	Insertions int  `json:"insertions"`
	Deletions  int  `json:"deletions"`
	Counted    bool `json:"counted"` // false: that is not known, and the numbers are 0
}

// Name is what people call a snapshot: "<invocation>/<number>".
func (s TakenSnapshot) Name() string {
	return Snapshot{Invocation: s.Invocation, Number: s.Number}.name()
}

// Subject is the first line of the message.
func (s TakenSnapshot) Subject() string {
	line, _, _ := strings.Cut(s.Message, "\n")
	return line
}

// SnapshotsRequest says which snapshots to list.
type SnapshotsRequest struct {
	Invocation string // an id or a unique prefix of one, which may have ended; "" is every one
	Uncounted  bool   // do without how much each differs from its parent, which takes longest to find out
}

// Snapshots lists snapshots by invocation and number, the newest last. It asks git a fixed number of things, however
// many there are.
func (r *Repository) Snapshots(ctx context.Context, req SnapshotsRequest) ([]TakenSnapshot, error) {
	var of []string
	if req.Invocation != "" {
		id, err := r.invocationOfSnapshots(ctx, req.Invocation)
		if err != nil {
			return nil, err
		}
		of = append(of, id)
	}
	all, err := snapshots(ctx, r.git, of...)
	if err != nil {
		return nil, err
	}
	commits := make([]string, len(all))
	for i, s := range all {
		commits[i] = s.ID
	}
	states, err := r.git.ReadStates(ctx, commits...)
	if err != nil {
		return nil, err
	}
	taken := make([]TakenSnapshot, len(all))
	against := map[string]string{}
	for i, s := range all {
		taken[i] = describe(s, states[i])
		against[s.ID] = taken[i].Parent
	}
	if req.Uncounted {
		return taken, nil
	}
	counted, err := r.git.CountChanges(ctx, against)
	if is[*git.Error](err) { // what can be said of them is worth having without that
		r.warn("files and lines cannot be counted: %v", err)
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

func describe(s Snapshot, state git.State) TakenSnapshot {
	t := TakenSnapshot{
		Invocation: s.Invocation, ID: s.ID, Ref: s.Ref, Number: s.Number,
		Message: state.Message, TakenAt: state.Time.UTC(), Tool: state.Tool,
		Tree: state.Tree, Base: state.Base, Head: state.Head, Index: state.Index,
	}
	if len(state.Parents) > 0 {
		t.Parent = state.Parents[0]
	}
	return t
}

// invocationOfSnapshots is the id of an invocation of which there is a record, or at least a snapshot.
func (r *Repository) invocationOfSnapshots(ctx context.Context, query string) (string, error) {
	inv, err := r.Invocation(query)
	if !is[*NotFoundError](err) {
		return inv.ID, err
	}
	all, listErr := snapshots(ctx, r.git)
	if listErr != nil {
		return "", listErr
	}
	found := map[string]bool{}
	for _, s := range all {
		if s.Invocation == query {
			return query, nil
		}
		if strings.HasPrefix(s.Invocation, query) {
			found[s.Invocation] = true
		}
	}
	switch ids := slices.Sorted(maps.Keys(found)); len(ids) {
	case 0:
		return "", err
	case 1:
		return ids[0], nil
	default:
		return "", &AmbiguousError{Kind: "invocation", Query: query, Matches: ids}
	}
}
