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
	dir     string     // path of scratch
	scratch *temporary // the temporary git directory
}

// NewMirror makes a Mirror. like is any object id of the repository, from which its object format is derived.
func (r *Repo) Mirror(like string) (_ *Mirror, err error) {
	scratch, err := tempDirectory()
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
	if err := makeBare(dir, FormatOf(like)); err != nil {
		return nil, err
	}
	m.repo = r.rehearsedIn(dir)
	return m, nil
}

// Close deletes the temporary git directory.
func (m *Mirror) Close() error { return m.scratch.remove() }

// DiskTree writes the files of a worktree as a tree object to the mirror, as a snapshot would, and returns the files left
// out. If files keep changing, the tree is not one consistent state: callers that compare want to see the present files,
// and will look again.
func (m *Mirror) WorkTree(ctx context.Context, s Subject) (tree string, left []LeftOut, err error) {
	head, _, err := m.repo.tips(ctx, s)
	if err != nil {
		return "", nil, err
	}
	return m.settledTree(ctx, s, head, func(gathered) {})
}

// stableDiskTree is DiskTree, and passes each scan to seen. It retries a scan during which files changed; the last try
// takes the files as they are.
func (m *Mirror) settledTree(ctx context.Context, s Subject, head string, seen func(gathered)) (tree string, left []LeftOut, err error) {
	s.asIs = true
	const tries = 3
	for n := 1; ; n++ {
		tree, left, err = m.workTree(ctx, s, head, n < tries, seen)
		if n == tries || !errors.As(err, new(*UnsettledError)) {
			return tree, left, err
		}
	}
}

// diskTreeOnce scans the worktree once. settled: fail with a *StillChangingError if files change meanwhile.
func (m *Mirror) workTree(ctx context.Context, s Subject, head string, settled bool, seen func(gathered)) (tree string, left []LeftOut, err error) {
	g, err := m.repo.gather(ctx, s, head)
	defer func() { err = errors.Join(err, g.close()) }()
	if err != nil {
		return "", nil, err
	}
	if g.work == nil {
		return "", nil, fmt.Errorf("%s is not a directory", s.Tree)
	}
	if settled {
		if err := g.settle(ctx); err != nil {
			return "", nil, err
		}
	}
	t, err := m.repo.ask(ctx)
	if err != nil {
		return "", nil, err
	}
	defer t.close()
	known, err := t.info(head + "^{tree}")
	if err == nil {
		err = m.repo.keepTrees(ctx, t, g, known[0].OID)
	}
	seen(g)
	return g.work.name(), g.leftOut, err
}

// Head returns the commit of a worktree's HEAD.
func (r *Repo) Head(ctx context.Context, s Subject) (string, error) {
	head, _, err := r.tips(ctx, s)
	return head, err
}

// ResolvedCommit is a commit with its tree.
type At struct {
	Commit, Tree string // empty: no such commit
	Err          error
}

// ResolveHeads resolves HEAD of some worktrees, and the name of a ref or commit, with one git process. Worktrees that
// cannot be read for lack of permission have their error in Err.
func (r *Repo) Whereabouts(ctx context.Context, subjects []Subject, name string) (heads []At, named At, err error) {
	t, err := r.ask(ctx)
	if err != nil {
		return nil, At{}, err
	}
	defer t.close()
	names := []string{name}
	heads = make([]At, len(subjects))
	for i, s := range subjects {
		heads[i].Commit, _, err = r.tipsBy(s, t.info)
		if errors.Is(err, fs.ErrPermission) {
			heads[i].Err, err = err, nil
		}
		if err != nil {
			return nil, At{}, err
		}
		names = append(names, heads[i].Commit)
	}
	for i, name := range names {
		found, err := t.info(name+"^{commit}", name+"^{tree}")
		if err != nil {
			return nil, At{}, err
		}
		at := At{Commit: found[0].OID, Tree: found[1].OID}
		if i == 0 {
			named = at
		} else if at.Err = heads[i-1].Err; at.Err == nil {
			heads[i-1] = at
		}
	}
	return heads, named, nil
}
