package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// Mirror is the repository as seen by somebody who only compares: a git directory of our own, somewhere else, that has
// nothing but its objects. Neither the settings of the repository nor its attributes, replacements and refs are there,
// all of which somebody in a sandbox without walls could have written; those of the user are. What is written goes into
// the directory and away with it.
type Mirror struct {
	repo    *Repo
	dir     string
	scratch *temporary // which that is
}

// Mirror makes one. like is the id of any object, which says how ids are made.
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

// Close takes away all that was written.
func (m *Mirror) Close() error { return m.scratch.remove() }

// WorkTree is what is on disk in a worktree as a tree object, which nobody but the mirror sees, and what it leaves out:
// what Freeze would hold. While files go on changing it is not one state, if it cannot be: who compares wants to see what
// there is, and will look again.
func (m *Mirror) WorkTree(ctx context.Context, s Subject) (tree string, left []LeftOut, err error) {
	head, _, err := m.repo.tips(ctx, s)
	if err != nil {
		return "", nil, err
	}
	return m.settledTree(ctx, s, head, func(gathered) {})
}

// settledTree is WorkTree, which tells what was looked at.
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

// workTree is WorkTree, once.
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

// Head is the commit that HEAD of a worktree is at.
func (r *Repo) Head(ctx context.Context, s Subject) (string, error) {
	head, _, err := r.tips(ctx, s)
	return head, err
}

// At is where something is: a commit, and the tree that it has.
type At struct {
	Commit, Tree string // empty when there is no commit
	Err          error
}

// Whereabouts says where HEAD of some worktrees is, and what a ref or a commit stands for, with one git however many
// there are.
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
