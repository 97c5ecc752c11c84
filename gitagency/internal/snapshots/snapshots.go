// Package snapshots names and keeps snapshots: it finds, lists, verifies and checks them out, and adds one to the series of a
// sandbox or of a directory. Package git/snapshot makes a commit of a tree, and a tree of a commit.
//
// It writes objects, refs below refs/agency/snapshots and the directory that a snapshot is checked out to, and nothing else.
// The caller holds the locks of the tree that it takes a snapshot of.
package snapshots

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
)

// Snapshot is the state of a sandbox at one moment, as an immutable commit. Its tree is the content on disk; its
// first parent is the previous snapshot, or the commit that the sandbox started from. Its message records HEAD and
// the index, and further parents keep their objects where needed.
type Snapshot struct {
	Invocation string `json:"invocation_id"`
	ID         string `json:"snapshot"` // full commit id
	Ref        string `json:"ref"`      // ref that keeps it
	Number     int    `json:"number"`   // number within the sandbox, from 1
	Created    bool   `json:"created"`  // false: an existing snapshot, unchanged since it was taken

	LeftOut []LeftOut `json:"left_out"` // paths in the sandbox that are neither ignored nor in the snapshot; only after taking one
}

// LeftOut is a path in a sandbox that a snapshot does not hold.
type LeftOut struct {
	Path   string `json:"path"` // relative to the top of the sandbox
	Reason string `json:"why"`  // one of the LeftOut constants
}

// Reasons why a path is left out.
const (
	LeftOutSecret     = string(status.OmitSecret)     // untracked file that looks like a credential
	LeftOutRepository = string(status.OmitRepository) // nested repository, which a commit cannot hold
	LeftOutSubmodule  = string(status.OmitSubmodule)  // checkout of a submodule; the snapshot holds only its staged commit id
	LeftOutLeft       = string(status.OmitLeft)       // uncommitted file that a landing leaves in the trash
	LeftOutReserved   = "reserved"                    // has the reserved name of the marker directory; only in a Directory
)

// ToLeftOut converts the files that package git/status left out.
func ToLeftOut(found []status.LeftOut) []LeftOut {
	all := make([]LeftOut, len(found))
	for i, l := range found {
		all[i] = LeftOut{Path: l.Path, Reason: string(l.Reason)}
	}
	return all
}

// Find finds a snapshot by its commit, in full or as a unique prefix, or by "<invocation>/<number>", where
// the invocation is named as for Repository.Invocation. The invocation may have ended.
func Find(ctx context.Context, r *core.Repository, repo *git.Repo, query string) (Snapshot, error) {
	if id, number, numbered := strings.Cut(query, "/"); numbered && strings.HasPrefix(id, "@") {
		inv, err := r.Invocation(id)
		if err != nil {
			return Snapshot{}, err
		}
		query = inv.ID + "/" + number
	}
	all, err := List(ctx, repo)
	if err != nil {
		return Snapshot{}, err
	}
	return Match(all, query)
}

// Match is Find on a list of snapshots.
func Match(all []Snapshot, query string) (Snapshot, error) {
	id, number, numbered := strings.Cut(query, "/")
	const shortest = 4 // shortest abbreviation of a commit that git accepts
	var found []Snapshot
	for _, s := range all {
		if numbered && s.Invocation == id && strconv.Itoa(s.Number) == number {
			return s, nil
		}
		if numbered && id != "" && ids.Matches(s.Invocation, id) && strconv.Itoa(s.Number) == number ||
			!numbered && len(query) >= shortest && strings.HasPrefix(s.ID, strings.ToLower(query)) {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 0:
		return Snapshot{}, &fault.NotFoundError{Kind: "snapshot", Query: query}
	case !slices.ContainsFunc(found, func(s Snapshot) bool { return s.ID != found[0].ID }):
		return found[0], nil
	}
	names := make([]string, len(found))
	for i, s := range found {
		names[i] = s.Name()
	}
	return Snapshot{}, &fault.AmbiguousError{Kind: "snapshot", Query: query, Matches: names}
}

// Name returns the name for users, "<invocation>/<number>".
func (s Snapshot) Name() string { return s.Invocation + "/" + strconv.Itoa(s.Number) }

// List lists the snapshots of some invocations, or of all, oldest first.
func List(ctx context.Context, repo *git.Repo, invocations ...string) ([]Snapshot, error) {
	prefixes := []string{core.AllSnapshotsPrefix}
	if len(invocations) > 0 {
		prefixes = nil
	}
	for _, id := range invocations {
		prefixes = append(prefixes, core.SnapshotsPrefix(id))
	}
	refs, err := repo.Refs(ctx, prefixes...)
	if err != nil {
		return nil, err
	}
	var all []Snapshot
	for ref, commit := range refs {
		id, _, _ := strings.Cut(strings.TrimPrefix(ref, core.AllSnapshotsPrefix), "/")
		if n := core.SnapshotNumber(id, ref); n > 0 {
			all = append(all, Snapshot{Invocation: id, ID: commit, Ref: ref, Number: n})
		}
	}
	sort.Slice(all, func(i, j int) bool {
		a, b := all[i], all[j]
		return cmp.Or(cmp.Compare(a.Invocation, b.Invocation), cmp.Compare(a.Number, b.Number)) < 0
	})
	return all, nil
}
