package gitagency

import (
	"context"
	"errors"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
)

// Sandbox is the tree of one invocation as a place to work in: commands run in it, files are put into it,
// its state is taken, and in the end it goes. Every method looks anew at what is there: a Sandbox may be
// kept for as long as one likes, also by several goroutines.
type Sandbox struct {
	ID string // of the invocation

	repo *Repository
	tree string
}

// Sandbox finds the sandbox of an invocation, by its id or a unique prefix. One that is broken or has
// ended has none.
func (r *Repository) Sandbox(query string) (*Sandbox, error) {
	inv, err := r.Invocation(query)
	if err != nil {
		return nil, err
	}
	if _, err := inv.Path(); err != nil {
		return nil, err
	}
	return &Sandbox{ID: inv.ID, repo: r, tree: r.store.SandboxTreePath(r.ID, inv.ID)}, nil
}

// WorkDir is the absolute path of the sandbox.
func (s *Sandbox) WorkDir() string { return s.tree }

// site is a sandbox that is being worked in: for as long as it is open, nobody removes it.
type site struct {
	*guard.Tree
	worktree string   // the id of the integration worktree it belongs to
	base     string   // the commit it started from
	occupied *os.File // a process that works in the sandbox keeps this open
}

// open makes sure that the sandbox is what it should be, and that it stays.
func (s *Sandbox) open(ctx context.Context) (_ *site, err error) {
	timeout, err := s.repo.lockTimeout()
	if err != nil {
		return nil, err
	}
	home := s.repo.store.InvocationDir(s.repo.ID, s.ID)
	occupied, err := lock.Occupy(ctx, home, timeout)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &NotFoundError{Kind: "invocation", Query: s.ID}
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, occupied.Close())
		}
	}()
	inv := invocation(s.repo.store.Invocation(s.repo.ID, s.ID, nil), nil) // as it is now that it stays
	if _, err := inv.Path(); err != nil {
		return nil, err
	}
	tree, err := guard.OpenTree(s.tree)
	if err != nil {
		return nil, err
	}
	if err := checkSandbox(tree); err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	return &site{Tree: tree, worktree: inv.WorktreeID, base: inv.BaseCommit, occupied: occupied}, nil
}

func (s *site) close() error { return errors.Join(s.Close(), s.occupied.Close()) }

// checkSandbox refuses to work in a tree that does not say it is a sandbox, or that says it is a person's.
func checkSandbox(tree *guard.Tree) error {
	theirs, err := tree.Carries(guard.Integration)
	if err != nil {
		return err
	}
	ours, err := tree.Carries(guard.Sandbox)
	if err != nil {
		return err
	}
	if theirs || !ours {
		return &NotSandboxError{Path: tree.Path, Integration: theirs}
	}
	return nil
}
