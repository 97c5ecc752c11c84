package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// integration is what a sandbox of the same worktree would start from now.
func (r *Repository) integration(ctx context.Context, inv Invocation) (string, error) {
	wt, err := r.worktreeByID(inv.WorktreeID)
	if err != nil {
		return "", err
	}
	name, err := r.integrationName(ctx, wt)
	if err != nil {
		return "", err
	}
	found, err := r.git.Lookup(ctx, name+"^{commit}")
	if err != nil {
		return "", err
	}
	if found[0].Missing() {
		return "", &NoCommitError{Name: short(name)}
	}
	return found[0].OID, nil
}

// integrationName is the ref or the commit that a worktree integrates into, also when its tree is gone.
func (r *Repository) integrationName(ctx context.Context, wt Worktree) (string, error) {
	if wt.Branch != "" {
		return heads + wt.Branch, nil
	}
	if err := wt.Err(); err != nil {
		return "", err
	}
	listing, err := r.git.Worktrees(ctx)
	if err != nil {
		return "", err
	}
	return r.integrationTip(wt, listing)
}

// integrationTip is the name of what a sandbox of this worktree starts from: its branch, also when
// something else is checked out there at the moment; without one, its detached HEAD.
func (r *Repository) integrationTip(wt Worktree, listing git.Listing) (string, error) {
	w, listed, err := wt.among(listing)
	switch {
	case err != nil:
		return "", err
	case wt.Branch == "" && !listed:
		return "", &NotWorktreeError{Path: wt.TreePath}
	case wt.Branch == "":
		return w.Head, nil
	case listed && w.Branch != heads+wt.Branch: // git does not know where its main worktree is when the git directory is elsewhere
		r.warn("worktree %q has something else checked out; the sandbox starts from its branch, %s", wt.Name, wt.Branch)
	}
	return heads + wt.Branch, nil
}

// among finds a worktree in what git lists.
func (w Worktree) among(listing git.Listing) (found git.Worktree, listed bool, err error) {
	place, err := guard.Locate(w.TreePath)
	if err != nil {
		return found, false, &UnsafePathError{Path: w.TreePath, Why: err.Error()}
	}
	for _, l := range listing.Worktrees {
		if !l.Bare && place.Relation(l.Path) == guard.Same {
			return l, true, nil
		}
	}
	return found, false, nil
}

// target is where it lands.
type target struct {
	worktree     Worktree
	branch       string // full ref
	at           string // the commit that it is at
	gitDir, tree string // of the worktree that has it checked out; empty where none has
}

// integrationTarget finds where the work of a sandbox lands.
func (r *Repository) integrationTarget(ctx context.Context, repo *git.Repo, worktreeID string) (t target, err error) {
	if t.worktree, err = r.worktreeByID(worktreeID); err != nil {
		return t, err
	}
	if err := t.worktree.usable(); err != nil {
		return t, err
	}
	if t.branch = heads + t.worktree.Branch; t.worktree.Branch == "" {
		listing, err := repo.Worktrees(ctx)
		if err != nil {
			return t, err
		}
		on, _, err := t.worktree.among(listing)
		if err != nil {
			return t, err
		}
		if t.branch = on.Branch; t.branch == "" {
			return t, &NoBranchError{Worktree: t.worktree.Name, Path: t.worktree.TreePath}
		}
	}
	if t.gitDir, t.tree, err = repo.Seat(ctx, t.branch); err != nil {
		return t, err
	}
	if t.at, err = repo.Tip(ctx, t.branch); err == nil && t.at == "" {
		err = &NoCommitError{Name: short(t.branch)}
	}
	return t, err
}
