package git

import (
	"context"
	"strings"
)

// RangeCommit is a commit of a range.
type Commit struct {
	OID     string
	Tree    string
	Parents []string
	Message string // converted to UTF-8
}

// Subject returns the first line of the message.
func (c Commit) Subject() string {
	subject, _, _ := strings.Cut(strings.TrimSpace(c.Message), "\n")
	return strings.TrimSpace(subject)
}

// CommitsBetween lists the commits of from..to, parents first, and refuses malformed ones.
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

// IsAncestor is Repo.IsAncestor for commits that may exist only in the merger.
func (m *Merger) IsAncestor(ctx context.Context, a, b string) (bool, error) {
	if err := m.flush(ctx); err != nil {
		return false, err
	}
	return m.repo.IsAncestor(ctx, a, b)
}

// SameTree reports whether two commits or trees have the same root tree.
func (m *Merger) SameTree(ctx context.Context, a, b string) (bool, error) {
	one, err := m.treeOf(ctx, a)
	if err != nil {
		return false, err
	}
	other, err := m.treeOf(ctx, b)
	return one == other, err
}

// BeginMerged is Begin for a new commit that exists only in the merger. Callers must Persist it before the first step.
func (m *Merger) Advance(ctx context.Context, u Advance) (*Advancing, error) {
	u.by = m
	return m.seeing().Advance(ctx, u)
}
