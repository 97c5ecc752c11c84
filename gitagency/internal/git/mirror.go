package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// Mirror is a temporary git directory with the repository's objects as an alternate, for comparing and merging. It has the
// user's config, but not the repository's config, attributes, replace refs and refs, all of which an agent without walls
// could have written. New objects go into the temporary directory and are deleted with it.
type Mirror struct {
	repo    *Repo
	dir     string        // path of scratch
	scratch *ownedTempDir // the temporary git directory
}

// NewMirror makes a Mirror. like is any object id of the repository, from which its object format is derived.
func (r *Repo) NewMirror(like string) (_ *Mirror, err error) {
	scratch, err := makeTempDir()
	if err != nil {
		return nil, err
	}
	dir := scratch.path
	m := &Mirror{dir: dir, scratch: scratch}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if err := initBare(dir, FormatOf(like)); err != nil {
		return nil, err
	}
	m.repo = r.dryRunRepo(dir)
	return m, nil
}

// Close deletes the temporary git directory.
func (m *Mirror) Close() error { return m.scratch.remove() }

// DiskTree writes the files of a worktree as a tree object to the mirror, as a snapshot would, and returns the files left
// out. If files keep changing, the tree is not one consistent state: callers that compare want to see the present files,
// and will look again.
func (m *Mirror) DiskTree(ctx context.Context, s WorktreeSpec) (tree string, left []LeftOut, err error) {
	head, _, err := m.repo.headAndBranch(ctx, s)
	if err != nil {
		return "", nil, err
	}
	return m.stableDiskTree(ctx, s, head, func(worktreeContents) {})
}

// stableDiskTree is DiskTree, and passes each scan to seen. It retries a scan during which files changed; the last try
// takes the files as they are.
func (m *Mirror) stableDiskTree(ctx context.Context, s WorktreeSpec, head string, seen func(worktreeContents)) (tree string, left []LeftOut, err error) {
	s.inUse = true
	const tries = 3
	for n := 1; ; n++ {
		tree, left, err = m.diskTreeOnce(ctx, s, head, n < tries, seen)
		if n == tries || !errors.As(err, new(*StillChangingError)) {
			return tree, left, err
		}
	}
}

// diskTreeOnce scans the worktree once. settled: fail with a *StillChangingError if files change meanwhile.
func (m *Mirror) diskTreeOnce(ctx context.Context, s WorktreeSpec, head string, settled bool, seen func(worktreeContents)) (tree string, left []LeftOut, err error) {
	g, err := m.repo.collectWorktree(ctx, s, head)
	defer func() { err = errors.Join(err, g.close()) }()
	if err != nil {
		return "", nil, err
	}
	if g.worktree == nil {
		return "", nil, fmt.Errorf("%s is not a directory", s.Dir)
	}
	if settled {
		if err := g.checkStable(ctx); err != nil {
			return "", nil, err
		}
	}
	t, err := m.repo.openCatFile(ctx)
	if err != nil {
		return "", nil, err
	}
	defer t.close()
	known, err := t.lookup(head + "^{tree}")
	if err == nil {
		err = m.repo.storeTrees(ctx, t, g, known[0].OID)
	}
	seen(g)
	return g.worktree.hexOID(), g.leftOut, err
}

// Head returns the commit of a worktree's HEAD.
func (r *Repo) Head(ctx context.Context, s WorktreeSpec) (string, error) {
	head, _, err := r.headAndBranch(ctx, s)
	return head, err
}

// ResolvedCommit is a commit with its tree.
type ResolvedCommit struct {
	Commit, Tree string // empty: no such commit
	Err          error
}

// ResolveHeads resolves HEAD of some worktrees, and the name of a ref or commit, with one git process. Worktrees that
// cannot be read for lack of permission have their error in Err.
func (r *Repo) ResolveHeads(ctx context.Context, subjects []WorktreeSpec, name string) (heads []ResolvedCommit, named ResolvedCommit, err error) {
	t, err := r.openCatFile(ctx)
	if err != nil {
		return nil, ResolvedCommit{}, err
	}
	defer t.close()
	names := []string{name}
	heads = make([]ResolvedCommit, len(subjects))
	for i, s := range subjects {
		heads[i].Commit, _, err = r.headAndBranchWith(s, t.lookup)
		if errors.Is(err, fs.ErrPermission) {
			heads[i].Err, err = err, nil
		}
		if err != nil {
			return nil, ResolvedCommit{}, err
		}
		names = append(names, heads[i].Commit)
	}
	for i, name := range names {
		found, err := t.lookup(name+"^{commit}", name+"^{tree}")
		if err != nil {
			return nil, ResolvedCommit{}, err
		}
		at := ResolvedCommit{Commit: found[0].OID, Tree: found[1].OID}
		if i == 0 {
			named = at
		} else if at.Err = heads[i-1].Err; at.Err == nil {
			heads[i-1] = at
		}
	}
	return heads, named, nil
}
