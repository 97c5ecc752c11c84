package merge

import (
	"context"
	"fmt"
)

// FsckRange checks the commits of upstream..tip. It refuses malformed commits (*object.InvalidCommitError), commits
// whose trees must not land (*fsck.Error), even if a later commit removes the offending file, as it stays in the
// history, and commits with missing or wrong objects: see checkComplete. It checks of each tree only what differs from
// the first parent's.
func (m *Merger) FsckRange(ctx context.Context, upstream, tip string) error {
	commits, err := m.listBetween(ctx, upstream, tip)
	if err != nil {
		return err
	}
	for _, c := range commits {
		known := ""
		if len(c.Parents) > 0 {
			known = c.Parents[0]
		}
		if err := m.FsckTree(ctx, c.Tree, known); err != nil {
			return fmt.Errorf("commit %.12s: %w", c.OID, err)
		}
	}
	return m.checkComplete(ctx, commits)
}
