package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/core"
)

// Worktree is an integration worktree: a directory that a person owns, and its branch.
type Worktree = core.Worktree

// Worktrees lists the integration worktrees, oldest first: the present and unbroken ones, or with all set, every one.
func (r *Repository) Worktrees(all bool) ([]Worktree, error) {
	return r.core.Worktrees(all)
}

// Worktree finds an integration worktree by its name, its id or a unique prefix of the id; an empty query means the
// one that contains the caller's directory.
func (r *Repository) Worktree(query string) (Worktree, error) {
	return r.core.Worktree(query)
}

// AdoptWorktreeRequest asks to make an existing git worktree an integration worktree.
type AdoptWorktreeRequest = core.AdoptWorktreeRequest

// AdoptWorktree gives a git worktree, also the main one, a marker and a record. It changes nothing else in it.
func (r *Repository) AdoptWorktree(ctx context.Context, req AdoptWorktreeRequest) (Worktree, error) {
	return r.core.AdoptWorktree(ctx, req)
}

// CreateWorktreeRequest asks for a new integration worktree.
type CreateWorktreeRequest = core.CreateWorktreeRequest

// CreateWorktree creates an integration worktree: a branch, a tree, a marker and a record, all or nothing.
func (r *Repository) CreateWorktree(ctx context.Context, req CreateWorktreeRequest) (Worktree, error) {
	return r.core.CreateWorktree(ctx, req)
}

// RemoveWorktreeRequest asks to archive an integration worktree.
type RemoveWorktreeRequest = core.RemoveWorktreeRequest

// RemoveWorktreeResult describes an archived worktree.
type RemoveWorktreeResult = core.RemoveWorktreeResult

// RemoveWorktree archives an integration worktree. Its branch stays. A created tree is removed, and its content that
// is in no branch is kept under a ref; an adopted tree only loses its marker. Doing it twice is fine.
func (r *Repository) RemoveWorktree(ctx context.Context, req RemoveWorktreeRequest) (RemoveWorktreeResult, error) {
	return r.core.RemoveWorktree(ctx, req)
}
