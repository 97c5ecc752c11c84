package merge

import (
	"context"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// RangeCommit is a commit of a range.
type RangeCommit struct {
	OID     string
	Tree    string
	Parents []string
	Message string // converted to UTF-8
}

// Subject returns the first line of the message.
func (c RangeCommit) Subject() string {
	subject, _, _ := strings.Cut(strings.TrimSpace(c.Message), "\n")
	return strings.TrimSpace(subject)
}

// CommitsBetween lists the commits of from..to, parents first, and refuses malformed ones.
func (m *Merger) CommitsBetween(ctx context.Context, from, to string) ([]RangeCommit, error) {
	found, err := m.listBetween(ctx, from, to)
	if err != nil {
		return nil, err
	}
	commits := make([]RangeCommit, len(found))
	for i, c := range found {
		commits[i] = RangeCommit{OID: c.OID, Tree: c.Tree, Parents: c.Parents, Message: object.ToUTF8(c.Message, c.Encoding)}
	}
	return commits, nil
}

// IsAncestor is Repo.IsAncestor for commits that may exist only in the merger.
func (m *Merger) IsAncestor(ctx context.Context, a, b string) (bool, error) {
	if err := m.Flush(ctx); err != nil {
		return false, err
	}
	return m.Repo.IsAncestor(ctx, a, b)
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
