package gitagency

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
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
	return r.sandboxOf(inv.ID), nil
}

// sandboxOf is the sandbox of an invocation, whatever is there of it.
func (r *Repository) sandboxOf(id string) *Sandbox {
	return &Sandbox{ID: id, repo: r, tree: r.store.SandboxTreePath(r.ID, id)}
}

// WorkDir is the absolute path of the sandbox.
func (s *Sandbox) WorkDir() string { return s.tree }

// Teardown ends the sandbox as Discard does: its commands are ended, everything that was in it is kept
// under a ref, and it goes. Doing it again is fine, and so is that some or all of it is gone already.
func (s *Sandbox) Teardown(ctx context.Context) error {
	_, err := s.repo.Discard(ctx, s.ID)
	if is[*BrokenError](err) { // a part is missing; the rest is kept, and goes too
		if _, err := s.repo.Fix(ctx, s.ID); err != nil && !is[*NotFoundError](err) {
			return err
		}
		_, err = s.repo.Discard(ctx, s.ID)
	}
	if is[*NotFoundError](err) || is[*EndedError](err) {
		return nil
	}
	return err
}

// site is a sandbox that is being worked in: for as long as it is open, nobody removes it.
type site struct {
	*guard.Tree
	worktree string // the id of the integration worktree it belongs to
	base     string // the commit it started from
	limits   Limits // what its commands may use
	prims    Primitives
	repo     *git.Repo // with the repository lock, when the caller has it
	occupied *os.File  // a process that works in the sandbox keeps this open
}

// open makes sure that the sandbox is what it should be, and that it stays. A rollback of it that was interrupted is
// finished first.
func (s *Sandbox) open(ctx context.Context) (*site, error) { return s.openHolding(ctx, nil) }

// openHolding is open for a caller that has the repository lock.
func (s *Sandbox) openHolding(ctx context.Context, repo *git.Repo) (*site, error) {
	for {
		if err := s.finishRollback(ctx, repo); err != nil {
			return nil, err
		}
		site, err := s.openNow(ctx)
		if err != nil || !s.halfWay() {
			return site, err
		}
		if err := site.close(); err != nil { // one was killed while we waited at the door
			return nil, err
		}
	}
}

func (s *Sandbox) openNow(ctx context.Context) (_ *site, err error) {
	timeout, err := s.repo.lockTimeout()
	if err != nil {
		return nil, err
	}
	occupied, err := s.enter(ctx, timeout)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &NotFoundError{Kind: "invocation", Query: s.ID}
	}
	if is[*LockTimeoutError](err) {
		return nil, &BusyError{ID: s.ID, Waited: timeout, Holders: proc.Holders(s.repo.store.SandboxDir(s.repo.ID, s.ID))}
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, occupied.Close())
		}
	}()
	return s.look(occupied)
}

// look makes sure that the sandbox is what it should be. occupied keeps it from going.
func (s *Sandbox) look(occupied *os.File) (*site, error) {
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
	return &site{Tree: tree, worktree: inv.WorktreeID, base: inv.BaseCommit, limits: limitsMade(inv.Limits), prims: sinceWalls(inv.Primitives), occupied: occupied}, nil
}

// sinceWalls reads what a record from before there were walls leaves unsaid.
func sinceWalls(p Primitives) Primitives {
	p.Isolation, p.Outputs = cmp.Or(p.Isolation, isolationNone), cmp.Or(p.Outputs, outputsOpen)
	return p
}

// enter goes in by the door, which is shut while somebody ends the sandbox.
func (s *Sandbox) enter(ctx context.Context, timeout time.Duration) (*os.File, error) {
	door, err := lock.Occupy(ctx, s.repo.store.SandboxDir(s.repo.ID, s.ID), timeout)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // what became of it, the record says
		return nil, err
	}
	occupied, err := lock.Occupy(ctx, s.repo.store.InvocationDir(s.repo.ID, s.ID), timeout)
	if door != nil {
		err = errors.Join(err, door.Close())
	}
	return occupied, err
}

// handOver leaves the sandbox to whoever has inherited the lock.
func (s *site) handOver() { _ = s.occupied.Close() }

func (s *site) close() error {
	err := s.occupied.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil // handed over
	}
	return errors.Join(s.Close(), err)
}

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
