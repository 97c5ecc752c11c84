package gitagency

import (
	"context"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Worktree is an integration worktree: a directory that a person owns, and its branch.
type Worktree struct {
	ID           string    `json:"worktree_id"`
	Name         string    `json:"name"`
	RepoID       string    `json:"repo_id"`
	Branch       string    `json:"branch"`
	ParentBranch string    `json:"parent_branch"` // branch that it was created from; empty if none is known
	TreePath     string    `json:"tree_path"`
	CreatedAt    time.Time `json:"created_at"`
	State        string    `json:"state"` // present or archived
	Broken       bool      `json:"broken"`
	BrokenReason string    `json:"broken_reason"`
	CheckedOut   string    `json:"checked_out,omitempty"` // branch checked out in the tree; set by Worktrees and Worktree only

	adopted bool  // it existed before git-agency knew it
	err     error // *BrokenError, if it is broken
}

func newWorktree(w core.Worktree) Worktree {
	return Worktree{
		ID: w.ID, Name: w.Name, RepoID: w.RepoID, Branch: w.Branch, ParentBranch: w.ParentBranch, TreePath: w.TreePath,
		CreatedAt: w.CreatedAt, State: w.State, Broken: w.Broken, BrokenReason: w.BrokenReason, CheckedOut: w.CheckedOut,
		adopted: w.Adopted, err: publicError(w.Err()),
	}
}

// Err returns a *BrokenError if the worktree is broken, else nil.
func (w Worktree) Err() error {
	if w.Broken && w.err == nil { // decoded from JSON
		return &BrokenError{Kind: "worktree", ID: w.ID, Reason: w.BrokenReason}
	}
	return w.err
}

// IntegrationBranch returns the branch that sandboxes started now would land on: an adopted worktree follows its HEAD.
func (w Worktree) IntegrationBranch() string {
	if w.adopted && w.CheckedOut != "" {
		return w.CheckedOut
	}
	return w.Branch
}

// Path returns the path of the tree. It fails for a broken worktree and for one that was archived and had been
// created here.
func (w Worktree) Path() (string, error) {
	if !w.Broken && w.State == store.Archived && !w.adopted {
		return "", publicError(&fault.ArchivedError{Name: w.Name, ID: w.ID, Branch: w.Branch})
	}
	return w.TreePath, w.Err()
}

// Worktrees lists the integration worktrees, oldest first: the present and unbroken ones, or with all set, every one.
func (r *Repository) Worktrees(all bool) ([]Worktree, error) {
	worktrees, err := r.core.Worktrees(all)
	return convertAll(worktrees, newWorktree), publicError(err)
}

// Worktree finds an integration worktree by its name, its id or a unique prefix of the id; an empty query means the
// one that contains the caller's directory. One whose tree is missing is found by its name and its full id, other broken
// ones by their full ids only.
func (r *Repository) Worktree(query string) (Worktree, error) {
	w, err := r.core.Worktree(query)
	return newWorktree(w), publicError(err)
}

// AdoptWorktreeRequest asks to make an existing git worktree an integration worktree.
type AdoptWorktreeRequest struct {
	Path string // any path in the worktree; default: the caller's directory
	Name string // default: derived from its branch
}

// AdoptWorktree gives a git worktree, also the main one, a marker and a record. It changes nothing else in it.
func (r *Repository) AdoptWorktree(ctx context.Context, req AdoptWorktreeRequest) (Worktree, error) {
	w, err := r.core.AdoptWorktree(ctx, core.AdoptWorktreeRequest(req))
	return newWorktree(w), publicError(err)
}

// CreateWorktreeRequest asks for a new integration worktree.
type CreateWorktreeRequest struct {
	Name string // required
	From string // a commit-ish; default: HEAD of the caller's worktree
}

// CreateWorktree creates an integration worktree: a branch, a tree, a marker and a record, all or nothing.
func (r *Repository) CreateWorktree(ctx context.Context, req CreateWorktreeRequest) (Worktree, error) {
	w, err := r.core.CreateWorktree(ctx, core.CreateWorktreeRequest(req))
	return newWorktree(w), publicError(err)
}

// RemoveWorktreeRequest asks to archive an integration worktree.
type RemoveWorktreeRequest struct {
	Worktree string // as for Repository.Worktree
	Force    bool   // also if it is dirty or has live sandboxes
}

// RemoveWorktreeResult describes an archived worktree.
type RemoveWorktreeResult struct {
	Worktree
	TrashRef string `json:"trash_ref"` // ref of the content that was in the tree and in no branch; empty if there was none
	Undone   bool   `json:"undone"`    // an interrupted creation was undone: not even a record is left
}

func newRemoveWorktreeResult(r core.RemoveWorktreeResult) RemoveWorktreeResult {
	return RemoveWorktreeResult{Worktree: newWorktree(r.Worktree), TrashRef: r.TrashRef, Undone: r.Undone}
}

// RemoveWorktree archives an integration worktree. Its branch stays. A created tree is removed, and its content that
// is in no branch is kept under a ref; an adopted tree only loses its marker. Doing it twice is fine.
func (r *Repository) RemoveWorktree(ctx context.Context, req RemoveWorktreeRequest) (RemoveWorktreeResult, error) {
	removed, err := r.core.RemoveWorktree(ctx, core.RemoveWorktreeRequest(req))
	return newRemoveWorktreeResult(removed), publicError(err)
}
