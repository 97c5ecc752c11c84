package gitagency

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// Snapshot is the state of a sandbox at one moment, as a commit that never changes. Its tree is what was on
// disk; its first parent is the snapshot before it, or the commit the sandbox started from; what HEAD was
// and what was staged is written in its message, and held by further parents where that is needed.
type Snapshot struct {
	Invocation string `json:"invocation_id"`
	ID         string `json:"snapshot"` // the full id of the commit
	Ref        string `json:"ref"`      // what keeps it
	Number     int    `json:"number"`   // among those of the sandbox, from 1
	Created    bool   `json:"created"`  // false: nothing has changed since it was taken

	LeftOut []LeftOut `json:"left_out"` // what is in the sandbox, not ignored, and yet not in there; only of one just taken
}

// LeftOut is something in a sandbox that a snapshot does not hold.
type LeftOut struct {
	Path string `json:"path"` // from the top of the sandbox
	Why  string `json:"why"`  // one of the Left constants
}

// Why something is left out.
const (
	LeftSecret     = string(git.Secret)     // an untracked file that looks like a credential
	LeftRepository = string(git.Repository) // a repository of its own, which no commit can hold
	LeftSubmodule  = string(git.Submodule)  // what is checked out of a submodule; which commit of it is staged is held
	LeftReserved   = "reserved"             // called like where the markers of a sandbox are; only in a Directory
)

func leftOut(found []git.LeftOut) []LeftOut {
	all := make([]LeftOut, len(found))
	for i, l := range found {
		all[i] = LeftOut{Path: l.Path, Why: string(l.Why)}
	}
	return all
}

// snapshotNamed finds a snapshot by its commit, in full or as a unique prefix, or by "<invocation>/<number>", where
// the invocation may be a unique prefix too. The invocation may have ended.
func (r *Repository) snapshotNamed(ctx context.Context, repo *git.Repo, query string) (Snapshot, error) {
	all, err := snapshots(ctx, repo)
	if err != nil {
		return Snapshot{}, err
	}
	return pickSnapshot(all, query)
}

// pickSnapshot is snapshotNamed for who has the list.
func pickSnapshot(all []Snapshot, query string) (Snapshot, error) {
	id, number, numbered := strings.Cut(query, "/")
	const shortest = 4 // of what git takes for the beginning of a commit
	var found []Snapshot
	for _, s := range all {
		if numbered && s.Invocation == id && strconv.Itoa(s.Number) == number {
			return s, nil
		}
		if numbered && id != "" && strings.HasPrefix(s.Invocation, id) && strconv.Itoa(s.Number) == number ||
			!numbered && len(query) >= shortest && strings.HasPrefix(s.ID, strings.ToLower(query)) {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 0:
		return Snapshot{}, &NotFoundError{Kind: "snapshot", Query: query}
	case !slices.ContainsFunc(found, func(s Snapshot) bool { return s.ID != found[0].ID }):
		return found[0], nil
	}
	names := make([]string, len(found))
	for i, s := range found {
		names[i] = s.name()
	}
	return Snapshot{}, &AmbiguousError{Kind: "snapshot", Query: query, Matches: names}
}

// name is what people call a snapshot.
func (s Snapshot) name() string { return s.Invocation + "/" + strconv.Itoa(s.Number) }

// snapshots lists those of some invocations, or of all, oldest first.
func snapshots(ctx context.Context, repo *git.Repo, invocations ...string) ([]Snapshot, error) {
	prefixes := []string{snapshotRoot}
	if len(invocations) > 0 {
		prefixes = nil
	}
	for _, id := range invocations {
		prefixes = append(prefixes, snapshotRefs(id))
	}
	refs, err := repo.Refs(ctx, prefixes...)
	if err != nil {
		return nil, err
	}
	var all []Snapshot
	for ref, commit := range refs {
		id, _, _ := strings.Cut(strings.TrimPrefix(ref, snapshotRoot), "/")
		if n := snapshotNumber(id, ref); n > 0 {
			all = append(all, Snapshot{Invocation: id, ID: commit, Ref: ref, Number: n})
		}
	}
	slices.SortFunc(all, func(a, b Snapshot) int {
		return cmp.Or(cmp.Compare(a.Invocation, b.Invocation), cmp.Compare(a.Number, b.Number))
	})
	return all, nil
}
