package store

import (
	"fmt"
	"strings"
)

// NotFoundError reports a query that matches no entry.
type NotFoundError struct {
	Kind  string // what was looked for: "invocation", "worktree", "snapshot", "directory" or "finding"
	Query string
}

func (e *NotFoundError) Error() string { return fmt.Sprintf("no such %s: %q", e.Kind, e.Query) }

// AmbiguousError reports a prefix that several ids share.
type AmbiguousError struct {
	Kind    string
	Query   string
	Matches []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q is ambiguous; it could be any of %s", e.Query, strings.Join(e.Matches, ", "))
}

// Resolve finds the entry that a query names: by name, where entries have names (named may be nil); by full id; or by
// an id prefix that no other entry shares. A defective entry is found by its full id only.
func Resolve[T any](kind string, entries []Entry[T], query string, named func(Entry[T]) string) (Entry[T], error) {
	var none Entry[T]
	var matches []Entry[T]
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
		if strings.HasPrefix(e.ID, query) {
			matches = append(matches, e)
		}
	}
	switch len(matches) {
	case 0:
		return none, &NotFoundError{Kind: kind, Query: query}
	case 1:
		return matches[0], nil
	}
	found := make([]string, len(matches))
	for i, m := range matches {
		found[i] = m.ID
	}
	return none, &AmbiguousError{Kind: kind, Query: query, Matches: found}
}
