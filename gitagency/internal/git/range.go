package git

import (
	"context"
	"strings"
)

// Commit is a commit of a range.
type Commit struct {
	OID     string
	Tree    string
	Parents []string
	Message string // in UTF-8, whatever it was in
}

// Subject is the first line of its message.
func (c Commit) Subject() string {
	subject, _, _ := strings.Cut(strings.TrimSpace(c.Message), "\n")
	return strings.TrimSpace(subject)
}

// Range lists the commits that lead to one and not to another, every one behind its parents. One that git would not have
// made is an *UnsoundCommitError.
func (m *Merger) Range(ctx context.Context, from, to string) ([]Commit, error) {
	found, err := m.between(ctx, from, to)
	if err != nil {
		return nil, err
	}
	commits := make([]Commit, len(found))
	for i, c := range found {
		commits[i] = Commit{OID: c.oid, Tree: c.tree, Parents: c.parents, Message: inUTF8(c.message, c.encoding)}
	}
	return commits, nil
}

// IsAncestor is Repo.IsAncestor, also of commits that only the merger has.
func (m *Merger) IsAncestor(ctx context.Context, a, b string) (bool, error) {
	if err := m.flush(ctx); err != nil {
		return false, err
	}
	return m.repo.IsAncestor(ctx, a, b)
}

// SameTree reports whether two commits or trees have the same files.
func (m *Merger) SameTree(ctx context.Context, a, b string) (bool, error) {
	one, err := m.treeOf(ctx, a)
	if err != nil {
		return false, err
	}
	other, err := m.treeOf(ctx, b)
	return one == other, err
}

// Advance is Repo.Advance to a commit that nobody but the merger has yet: before the first step that changes something it
// has to be kept.
func (m *Merger) Advance(ctx context.Context, a Advance) (*Advancing, error) {
	a.by = m
	return m.seeing().Advance(ctx, a)
}
