package store

import (
	"fmt"
	"strings"
)

// NotFoundError reports a query that matches no entry.
type NotFoundError struct {
	Kind  string // what was looked for: "invocation", "worktree", "snapshot", "directory" or "finding"
	Query string
	Named []string // ids of the invocations with this name, if an invocation was looked for; newest first

	Archived       string // id of the newest archived worktree with this name, if a worktree was looked for
	ArchivedBranch string // its branch; empty if it had none
}

func (e *NotFoundError) Error() string {
	if e.Archived != "" {
		return fmt.Sprintf("%s %q (%s) is archived", e.Kind, e.Query, e.Archived)
	}
	return fmt.Sprintf("no such %s: %q", e.Kind, e.Query)
}

// AmbiguousError reports a prefix that several ids share.
type AmbiguousError struct {
	Kind    string
	Query   string
	Matches []string
}

func (e *AmbiguousError) Error() string {
	const most = 3 // more would hide the error itself
	if n := len(e.Matches); n > most {
		return fmt.Sprintf("%q is ambiguous; it could be any of %d: %s and so on", e.Query, n, strings.Join(e.Matches[:most], ", "))
	}
	return fmt.Sprintf("%q is ambiguous; it could be any of %s", e.Query, strings.Join(e.Matches, ", "))
}

// Matching says which entries a query that is neither a full id nor a name may mean. A query must match one entry only.
type Matching func(id, query string) bool

// Resolve finds the entry that a query names: by name, where entries have names (named may be nil); by full id; or by
// a part of an id that no other entry matches. A defective entry is found by its full id only.
func Resolve[T any](kind string, entries []Entry[T], query string, matches Matching, named func(Entry[T]) string) (Entry[T], error) {
	var none Entry[T]
	var found []Entry[T]
	for _, e := range entries {
		if e.ID == query {
			return e, nil
		}
		if e.Defect != NoDefect || query == "" {
			continue
		}
		if named != nil && named(e) == query {
			return e, nil
		}
		if matches(e.ID, query) {
			found = append(found, e)
		}
	}
	switch len(found) {
	case 0:
		return none, &NotFoundError{Kind: kind, Query: query}
	case 1:
		return found[0], nil
	}
	all := make([]string, len(found))
	for i, f := range found {
		all[i] = f.ID
	}
	return none, &AmbiguousError{Kind: kind, Query: query, Matches: all}
}
