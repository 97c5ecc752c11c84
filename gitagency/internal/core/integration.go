package core

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/update"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// IntegrationCommit returns the commit of the branch that a sandbox lands on.
func (r *Repository) IntegrationCommit(ctx context.Context, inv Invocation) (string, error) {
	wt, err := r.WorktreeByID(inv.WorktreeID)
	if err != nil {
		return "", err
	}
	name, err := r.IntegrationRev(ctx, wt, inv.IntegrationBranch)
	if err != nil {
		return "", err
	}
	found, err := r.Git.Lookup(ctx, name+"^{commit}")
	if err != nil {
		return "", err
	}
	if found[0].Missing() {
		return "", r.MissingBranch(ctx, r.Git, inv, name)
	}
	return found[0].OID, nil
}

// MissingBranch returns the error for a branch that an invocation lands on and that does not exist.
func (r *Repository) MissingBranch(ctx context.Context, repo *git.Repo, inv Invocation, branch string) error {
	if !strings.HasPrefix(branch, HeadsPrefix) {
		return &fault.NoCommitError{Name: branch}
	}
	since, known := ids.Time(inv.ID)
	if !known {
		since = inv.StartedAt
	}
	return &fault.MissingBranchError{
		ID: inv.ID, Branch: ShortBranch(branch), RenamedTo: ShortBranch(r.RenamedBranch(ctx, repo, branch, since)),
		Commit: cmp.Or(inv.SyncedCommit, inv.BaseCommit),
	}
}

// RenamedBranch returns the full ref that a missing branch was renamed to since a time; empty if none is known. Reflogs that
// cannot be read are a warning.
func (r *Repository) RenamedBranch(ctx context.Context, repo *git.Repo, branch string, since time.Time) string {
	now, err := repo.RenamedBranch(ctx, branch, since)
	if err != nil {
		r.Warn("the reflogs of branches cannot be read: %v", err)
	}
	return now
}

// IntegrationRev returns the ref or commit that a sandbox of a worktree integrates into: the branch that its record names;
// else that of the worktree, which then needs no tree; else what is checked out there.
func (r *Repository) IntegrationRev(ctx context.Context, wt Worktree, recorded string) (string, error) {
	if branch := cmp.Or(recorded, branchRef(wt.Branch)); branch != "" {
		return branch, nil
	}
	if err := wt.Err(); err != nil {
		return "", err
	}
	listing, err := worktree.List(ctx, r.Git)
	if err != nil {
		return "", err
	}
	start, err := r.FindSandboxStart(wt, listing)
	return start.Rev, err
}

// IntegrationBranch returns the full ref that the work of an invocation lands on: the one in its record; in older records,
// the branch of its worktree. It is empty if neither has one.
func IntegrationBranch(m store.InvocationMeta, wt store.WorktreeMeta) string {
	return cmp.Or(m.IntegrationBranch, branchRef(wt.Branch))
}

// SandboxStart says where a sandbox of an integration worktree starts, and where its work lands.
type SandboxStart struct {
	Rev        string // branch or commit to start from
	Head       string // commit at HEAD of the worktree; empty if it is unknown
	HeadBranch string // full ref that is checked out there; empty if HEAD is detached
	Branch     string // full ref that the work lands on; empty if that is decided by the landing
}

// FindSandboxStart returns where a sandbox of a worktree starts. A created worktree has one branch, even while another one
// is checked out there. An adopted one follows its HEAD; while that is detached, the sandbox starts from its commit and
// lands on the branch that the worktree was adopted with, or, if it was adopted with a detached HEAD, on the branch that is
// checked out there when it lands.
func (r *Repository) FindSandboxStart(wt Worktree, listing worktree.Listing) (SandboxStart, error) {
	head, listed, err := wt.findInListing(listing)
	own := branchRef(wt.Branch)
	switch {
	case err != nil:
		return SandboxStart{}, err
	case !listed && own == "":
		return SandboxStart{}, &fault.NotWorktreeError{Path: wt.TreePath}
	case !listed: // the git directory is elsewhere: git then does not know the path of its main worktree
		return SandboxStart{Rev: own, Head: head.Head, HeadBranch: head.Branch, Branch: own}, nil
	case !wt.Adopted:
		if head.Branch != own {
			r.Warn("worktree %q does not have its branch checked out; the sandbox starts from that branch, %s", wt.Name, wt.Branch)
		}
		return SandboxStart{Rev: own, Head: head.Head, HeadBranch: head.Branch, Branch: own}, nil
	case head.Branch != "" && !strings.HasPrefix(head.Branch, HeadsPrefix):
		return SandboxStart{}, &fault.UnsafePathError{Path: wt.TreePath, Why: "its HEAD is " + head.Branch + ", which is no branch; switch to a branch first"}
	case isSandboxRef(head.Branch):
		return SandboxStart{}, &fault.SandboxBranchError{Path: wt.TreePath, Branch: ShortBranch(head.Branch)}
	case head.Branch != "":
		return SandboxStart{Rev: head.Branch, Head: head.Head, HeadBranch: head.Branch, Branch: head.Branch}, nil
	}
	return SandboxStart{Rev: head.Head, Head: head.Head, Branch: own}, nil
}

// WarnDetached warns that HEAD of an adopted worktree is detached, and says where a sandbox that starts there lands.
func (r *Repository) WarnDetached(wt Worktree, at SandboxStart) {
	switch {
	case !wt.Adopted || at.HeadBranch != "" || at.Head == "":
	case at.Branch != "":
		r.Warn("HEAD of %s is detached; the work of this sandbox lands on %s", wt.TreePath, wt.Branch)
	default:
		r.Warn("HEAD of %s is detached; the work of this sandbox lands on the branch that is checked out there when it lands", wt.TreePath)
	}
}

// WorktreeBranch returns the full ref of the branch that sandboxes of a worktree would land on if they were started now;
// empty if there is none.
func (r *Repository) WorktreeBranch(ctx context.Context, worktreeID string) (string, error) {
	wt, err := r.WorktreeByID(worktreeID)
	if err != nil || !wt.Adopted {
		return branchRef(wt.Branch), err
	}
	listing, err := worktree.List(ctx, r.Git)
	if err != nil {
		return "", err
	}
	head, listed, err := wt.findInListing(listing)
	if err != nil || !listed || head.Branch == "" {
		return branchRef(wt.Branch), err
	}
	return head.Branch, nil
}

// findInListing finds an integration worktree in git's worktree list, by its path.
func (w Worktree) findInListing(listing worktree.Listing) (found worktree.Worktree, listed bool, err error) {
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

// FindIntegrationTarget finds the branch that a sandbox of a worktree lands on: the one that its record names; else, for
// older records, that of the worktree; else, for a sandbox that started from a detached HEAD, the one checked out there. Of
// the invocation, WorktreeID is required; ID, StartedAt and its commits serve to describe a branch that does not exist any
// more.
func (r *Repository) FindIntegrationTarget(ctx context.Context, repo *git.Repo, inv Invocation) (t IntegrationTarget, err error) {
	if t.Worktree, err = r.WorktreeByID(inv.WorktreeID); err != nil {
		return t, err
	}
	if err := t.Worktree.CheckUsable(); err != nil {
		return t, r.explainArchived(err, inv)
	}
	if t.Branch = cmp.Or(inv.IntegrationBranch, branchRef(t.Worktree.Branch)); t.Branch == "" {
		listing, err := worktree.List(ctx, repo)
		if err != nil {
			return t, err
		}
		start, err := r.FindSandboxStart(t.Worktree, listing)
		if err != nil {
			return t, err
		}
		if t.Branch = start.Branch; t.Branch == "" {
			return t, &fault.NoBranchError{Worktree: t.Worktree.Name, Path: t.Worktree.TreePath}
		}
	}
	if t.CheckoutGitDir, t.CheckoutTree, err = update.CheckedOutIn(ctx, repo, t.Branch); err != nil {
		return t, err
	}
	if t.Commit, err = repo.Tip(ctx, t.Branch); err == nil && t.Commit == "" {
		err = r.MissingBranch(ctx, repo, inv, t.Branch)
	}
	return t, err
}

// explainArchived adds to an *fault.ArchivedError which invocation was to land there, and the worktree that has its branch now.
func (r *Repository) explainArchived(err error, inv Invocation) error {
	var archived *fault.ArchivedError
	if !errors.As(err, &archived) || inv.ID == "" {
		return err
	}
	archived.Invocation = inv.ID
	now, findErr := r.FindWorktreeOfBranch(cmp.Or(inv.IntegrationBranch, branchRef(archived.Branch)))
	archived.Successor = now.Name
	return errors.Join(err, findErr)
}

// CheckNotArchived refuses an invocation whose integration worktree is archived, and which therefore cannot land.
func (r *Repository) CheckNotArchived(inv Invocation) error {
	wt, err := r.WorktreeByID(inv.WorktreeID)
	if err != nil || wt.Broken || wt.State != store.Archived {
		return nil // whether it can land otherwise, land decides
	}
	return r.explainArchived(wt.CheckUsable(), inv)
}

// FindWorktreeOfBranch returns the oldest usable integration worktree whose sandboxes would land on a branch, a full ref, if
// they were started now; the zero value if there is none.
func (r *Repository) FindWorktreeOfBranch(branch string) (Worktree, error) {
	worktrees, err := r.Worktrees(false)
	for _, w := range worktrees {
		own := w.Branch
		if w.Adopted && w.CheckedOut != "" {
			own = w.CheckedOut
		}
		if branch != "" && branchRef(own) == branch && w.CheckUsable() == nil {
			return w, nil
		}
	}
	return Worktree{}, err
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
	listing, err := r.ListIntegration(r.Git)
	if err != nil {
		return nil, err
	}
	for _, w := range listing.Worktrees[1:] { // the main one is listed above
		if !guard.Contains(r.DataDir, w.Path) { // a tree in the data directory is a sandbox, or listed from its record below
			trees = append(trees, w.Path)
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
