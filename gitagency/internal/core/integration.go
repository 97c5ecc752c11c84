package core

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/update"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// IntegrationCommit returns the commit that a new sandbox of the same worktree would start from now.
func (r *Repository) IntegrationCommit(ctx context.Context, inv Invocation) (string, error) {
	wt, err := r.WorktreeByID(inv.WorktreeID)
	if err != nil {
		return "", err
	}
	name, err := r.IntegrationRev(ctx, wt)
	if err != nil {
		return "", err
	}
	found, err := r.Git.Lookup(ctx, name+"^{commit}")
	if err != nil {
		return "", err
	}
	if found[0].Missing() {
		return "", &fault.NoCommitError{Name: ShortBranch(name)}
	}
	return found[0].OID, nil
}

// IntegrationRev returns the ref or commit that a worktree integrates into. A worktree with a branch needs no tree
// for that.
func (r *Repository) IntegrationRev(ctx context.Context, wt Worktree) (string, error) {
	if wt.Branch != "" {
		return HeadsPrefix + wt.Branch, nil
	}
	if err := wt.Err(); err != nil {
		return "", err
	}
	listing, err := r.Git.Worktrees(ctx)
	if err != nil {
		return "", err
	}
	return r.SandboxStartRev(wt, listing)
}

// SandboxStartRev returns the revision that a sandbox of this worktree starts from: the worktree's branch, even while
// something else is checked out there; without a branch, the commit of its detached HEAD.
func (r *Repository) SandboxStartRev(wt Worktree, listing git.WorktreeList) (string, error) {
	w, listed, err := wt.findInListing(listing)
	switch {
	case err != nil:
		return "", err
	case wt.Branch == "" && !listed:
		return "", &fault.NotWorktreeError{Path: wt.TreePath}
	case wt.Branch == "":
		return w.Head, nil
	case listed && w.Branch != HeadsPrefix+wt.Branch: // not listed where the git directory is elsewhere: git then does not know the path of its main worktree
		r.Warn("worktree %q does not have its branch checked out; the sandbox starts from that branch, %s", wt.Name, wt.Branch)
	}
	return HeadsPrefix + wt.Branch, nil
}

// findInListing finds an integration worktree in git's worktree list, by its path.
func (w Worktree) findInListing(listing git.WorktreeList) (found git.Worktree, listed bool, err error) {
	place, err := guard.Locate(w.TreePath)
	if err != nil {
		return found, false, &fault.UnsafePathError{Path: w.TreePath, Why: err.Error()}
	}
	for _, l := range listing.Worktrees {
		if !l.Bare && place.Relation(l.Path) == guard.Same {
			return l, true, nil
		}
	}
	return found, false, nil
}

// IntegrationTarget is the branch that a sandbox lands on, and the worktree that has it checked out.
type IntegrationTarget struct {
	Worktree                     Worktree
	Branch                       string // full ref
	Commit                       string // commit of the branch
	CheckoutGitDir, CheckoutTree string // git directory and tree of the worktree that has the branch checked out; empty where none has
}

// FindIntegrationTarget finds the branch that the sandboxes of a worktree land on.
func (r *Repository) FindIntegrationTarget(ctx context.Context, repo *git.Repo, worktreeID string) (t IntegrationTarget, err error) {
	if t.Worktree, err = r.WorktreeByID(worktreeID); err != nil {
		return t, err
	}
	if err := t.Worktree.CheckUsable(); err != nil {
		return t, err
	}
	if t.Branch = HeadsPrefix + t.Worktree.Branch; t.Worktree.Branch == "" {
		listing, err := repo.Worktrees(ctx)
		if err != nil {
			return t, err
		}
		on, _, err := t.Worktree.findInListing(listing)
		if err != nil {
			return t, err
		}
		if t.Branch = on.Branch; t.Branch == "" {
			return t, &fault.NoBranchError{Worktree: t.Worktree.Name, Path: t.Worktree.TreePath}
		}
	}
	if t.CheckoutGitDir, t.CheckoutTree, err = update.CheckedOutIn(ctx, repo, t.Branch); err != nil {
		return t, err
	}
	if t.Commit, err = repo.Tip(ctx, t.Branch); err == nil && t.Commit == "" {
		err = &fault.NoCommitError{Name: ShortBranch(t.Branch)}
	}
	return t, err
}

// IntegrationTrees lists the trees that people work in: all worktrees of this repository, adopted or not, and, if the
// policy makes anything besides the sandbox writable, the recorded integration worktrees of all other repositories.
func (r *Repository) IntegrationTrees(p settings.Policy) ([]string, error) {
	var trees []string
	if filepath.Base(r.CommonDir) == ".git" {
		trees = append(trees, filepath.Dir(r.CommonDir))
	}
	if tree := r.Git.Config.Value("core.worktree"); tree != "" {
		if !filepath.IsAbs(tree) {
			tree = filepath.Join(r.CommonDir, tree)
		}
		trees = append(trees, tree)
	}
	entries, err := r.Git.WorktreeEntries()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Path != "" && !guard.Contains(r.DataDir, e.Path) { // a tree in the data directory is a sandbox, or listed from its record below
			trees = append(trees, e.Path)
		}
	}
	repos := []string{r.ID}
	if len(p.Write)+len(p.OverlayWrite) > 0 {
		found, err := os.ReadDir(r.Store.RepoDir(""))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, f := range found {
			repos = append(repos, f.Name())
		}
	}
	for _, repo := range repos {
		worktrees, err := r.Store.Worktrees(repo, nil)
		if err != nil {
			return nil, err
		}
		for _, w := range worktrees {
			if w.Record.State != store.Archived {
				trees = append(trees, w.TreePath)
			}
		}
	}
	for i, tree := range trees {
		trees[i] = cmp.Or(guard.ResolveOrEmpty(tree), filepath.Clean(tree))
	}
	slices.Sort(trees)
	return slices.Compact(trees), nil
}
