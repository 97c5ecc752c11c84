package status

import (
	"context"
	"errors"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// DiskTree writes the files of a worktree as a tree object to the mirror, as a snapshot would, and returns the files left
// out. If files keep changing, the tree is not one consistent state: callers that compare want to see the present files,
// and will look again.
func DiskTree(ctx context.Context, m *git.Mirror, s git.WorktreeSpec) (tree string, left []LeftOut, err error) {
	head, _, err := m.Repo.HeadAndBranch(ctx, s)
	if err != nil {
		return "", nil, err
	}
	return stableDiskTree(ctx, m, s, head, func(WorktreeContents) {})
}

// stableDiskTree is DiskTree, and passes each scan to seen. It retries a scan during which files changed; the last try
// takes the files as they are.
func stableDiskTree(ctx context.Context, m *git.Mirror, s git.WorktreeSpec, head string, seen func(WorktreeContents)) (tree string, left []LeftOut, err error) {
	s.InUse = true
	const tries = 3
	for n := 1; ; n++ {
		tree, left, err = diskTreeOnce(ctx, m, s, head, n < tries, seen)
		if n == tries || !errors.As(err, new(*StillChangingError)) {
			return tree, left, err
		}
	}
}

// diskTreeOnce scans the worktree once. settled: fail with a *StillChangingError if files change meanwhile.
func diskTreeOnce(ctx context.Context, m *git.Mirror, s git.WorktreeSpec, head string, settled bool, seen func(WorktreeContents)) (tree string, left []LeftOut, err error) {
	g, err := CollectWorktree(ctx, m.Repo, s, head)
	defer func() { err = errors.Join(err, g.Close()) }()
	if err != nil {
		return "", nil, err
	}
	if g.Worktree == nil {
		return "", nil, fmt.Errorf("%s is not a directory", s.Dir)
	}
	if settled {
		if err := g.CheckStable(ctx); err != nil {
			return "", nil, err
		}
	}
	t, err := m.Repo.OpenCatFile(ctx)
	if err != nil {
		return "", nil, err
	}
	defer t.Close()
	known, err := t.Lookup(head + "^{tree}")
	if err == nil {
		err = StoreTrees(ctx, m.Repo, t, g, known[0].OID)
	}
	seen(g)
	return g.Worktree.HexOID(), g.LeftOut, err
}
