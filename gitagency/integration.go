package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/update"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// integrationCommit returns the commit that a new sandbox of the same worktree would start from now.
func (r *Repository) integrationCommit(ctx context.Context, inv Invocation) (string, error) {
	wt, err := r.worktreeByID(inv.WorktreeID)
	if err != nil {
		return "", err
	}
	name, err := r.integrationRev(ctx, wt)
	if err != nil {
		return "", err
	}
	found, err := r.git.Lookup(ctx, name+"^{commit}")
	if err != nil {
		return "", err
	}
	if found[0].Missing() {
		return "", &NoCommitError{Name: shortBranch(name)}
	}
	return found[0].OID, nil
}

// integrationRev returns the ref or commit that a worktree integrates into. A worktree with a branch needs no tree
// for that.
func (r *Repository) integrationRev(ctx context.Context, wt Worktree) (string, error) {
	if wt.Branch != "" {
		return headsPrefix + wt.Branch, nil
	}
	if err := wt.Err(); err != nil {
		return "", err
	}
	listing, err := r.git.Worktrees(ctx)
	if err != nil {
		return "", err
	}
	return r.sandboxStartRev(wt, listing)
}

// sandboxStartRev returns the revision that a sandbox of this worktree starts from: the worktree's branch, even while
// something else is checked out there; without a branch, the commit of its detached HEAD.
func (r *Repository) sandboxStartRev(wt Worktree, listing git.WorktreeList) (string, error) {
	w, listed, err := wt.findInListing(listing)
	switch {
	case err != nil:
		return "", err
	case wt.Branch == "" && !listed:
		return "", &NotWorktreeError{Path: wt.TreePath}
	case wt.Branch == "":
		return w.Head, nil
	case listed && w.Branch != headsPrefix+wt.Branch: // not listed where the git directory is elsewhere: git then does not know the path of its main worktree
		r.warn("worktree %q has something else checked out; the sandbox starts from its branch, %s", wt.Name, wt.Branch)
	}
	return headsPrefix + wt.Branch, nil
}

// findInListing finds an integration worktree in git's worktree list, by its path.
func (w Worktree) findInListing(listing git.WorktreeList) (found git.Worktree, listed bool, err error) {
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

// integrationTarget is the branch that a sandbox lands on, and the worktree that has it checked out.
type integrationTarget struct {
	worktree                     Worktree
	branch                       string // full ref
	commit                       string // commit of the branch
	checkoutGitDir, checkoutTree string // git directory and tree of the worktree that has the branch checked out; empty where none has
}

// findIntegrationTarget finds the branch that the sandboxes of a worktree land on.
func (r *Repository) findIntegrationTarget(ctx context.Context, repo *git.Repo, worktreeID string) (t integrationTarget, err error) {
	if t.worktree, err = r.worktreeByID(worktreeID); err != nil {
		return t, err
	}
	if err := t.worktree.checkUsable(); err != nil {
		return t, err
	}
	if t.branch = headsPrefix + t.worktree.Branch; t.worktree.Branch == "" {
		listing, err := repo.Worktrees(ctx)
		if err != nil {
			return t, err
		}
		on, _, err := t.worktree.findInListing(listing)
		if err != nil {
			return t, err
		}
		if t.branch = on.Branch; t.branch == "" {
			return t, &NoBranchError{Worktree: t.worktree.Name, Path: t.worktree.TreePath}
		}
	}
	if t.checkoutGitDir, t.checkoutTree, err = update.CheckedOutIn(ctx, repo, t.branch); err != nil {
		return t, err
	}
	if t.commit, err = repo.Tip(ctx, t.branch); err == nil && t.commit == "" {
		err = &NoCommitError{Name: shortBranch(t.branch)}
	}
	return t, err
}
