package core

import (
	"context"
	"fmt"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// CreateWorktreeRequest asks for a new integration worktree.
type CreateWorktreeRequest struct {
	Name string // required
	From string // a commit-ish; default: HEAD of the caller's worktree
}

// CreateWorktree creates an integration worktree: a branch, a tree, a marker and a record, all or nothing.
func (r *Repository) CreateWorktree(ctx context.Context, req CreateWorktreeRequest) (Worktree, error) {
	if err := CheckWorktreeName(req.Name); err != nil {
		return Worktree{}, err
	}
	if err := r.CheckNotMoved(); err != nil {
		return Worktree{}, err
	}
	r.warnRecordsElsewhere()
	base, parent, err := r.resolveStartCommit(ctx, req.From)
	if err != nil {
		return Worktree{}, err
	}
	lock, err := r.HoldLock(ctx)
	if err != nil {
		return Worktree{}, err
	}
	defer lock.Close()
	repo := lock.Repo
	if err := r.checkNameFree(req.Name); err != nil {
		return Worktree{}, err
	}
	listing, err := worktree.List(ctx, repo)
	if err != nil {
		return Worktree{}, err
	}

	id, at, err := r.allocateWorktree(ctx, repo, req.Name, base)
	if err != nil {
		return Worktree{}, err
	}
	tree := r.Store.WorktreeTreePath(r.ID, id)
	if err := r.CheckPlacement(tree, listing); err != nil {
		return Worktree{}, err
	}
	if err := CheckListingIntact(listing); err != nil {
		return Worktree{}, err
	}

	home, branch := r.Store.WorktreeDir(r.ID, id), worktreeRef(req.Name, id)
	err = r.CreateTree(ctx, repo, Creation{
		Verb:          "worktree create",
		RecordDir:     home,
		MakeRecordDir: func() error { return r.Store.CreateWorktreeDir(r.ID, id) },
		Backend:       WorktreeBackend(repo),
		Spec: changeset.Spec{
			ID: id, Tree: tree, Branch: branch, Base: base, Scratch: home, Reason: "agency: worktree create " + req.Name,
		},
		SourceTree: repo.TopLevel,
		Marker:     guard.Integration,
		Lock:       lock,
		Recheck:    func() error { return r.checkNameFree(req.Name) },
		WriteRecord: func() error {
			return r.Store.WriteWorktreeMeta(store.WorktreeMeta{
				SchemaVersion: store.SchemaVersion, WorktreeID: id, Name: req.Name, RepoID: r.ID,
				Branch: ShortBranch(branch), ParentBranch: parent, TreePath: tree, CreatedAt: at, State: store.Present,
			})
		},
	})
	if err != nil {
		return Worktree{}, fmt.Errorf("create worktree %q: %w", req.Name, err)
	}
	return r.WorktreeFromEntry(r.Store.Worktree(r.ID, id, nil)), nil
}

// allocateWorktree allocates an id for a worktree that starts from a commit.
func (r *Repository) allocateWorktree(ctx context.Context, repo *git.Repo, name, base string) (id string, at time.Time, err error) {
	tracked := false
	id, at, err = r.AllocateID(ctx, func(id string) (string, error) {
		if path, taken := store.FirstExisting(r.Store.WorktreeDir(r.ID, id), repo.AdminDir(id)); taken {
			return path, nil
		}
		branch := worktreeRef(name, id)
		found, err := repo.Lookup(ctx, branch, HeadsPrefix+BranchNamespace, base+":"+guard.AgencyDir)
		switch {
		case err != nil:
			return "", err
		case !found[1].Missing():
			return "", &fault.BranchInTheWayError{Branch: BranchNamespace}
		case !found[0].Missing():
			return branch, nil
		}
		tracked = !found[2].Missing()
		return "", nil
	})
	if err == nil && tracked {
		err = &fault.TrackedMarkerError{Commit: base}
	}
	return id, at, err
}

// resolveStartCommit resolves the start of a new worktree, once, to a commit id, and to the branch if it names one.
func (r *Repository) resolveStartCommit(ctx context.Context, from string) (commit, branch string, err error) {
	name := from
	if name == "" {
		name = "HEAD"
	}
	commit, branch, ok, err := r.Git.ResolveCommit(ctx, name)
	if err != nil {
		return "", "", err
	}
	if !ok {
		if unborn := r.Git.HeadBranch(); name == "HEAD" && unborn != "" {
			return "", "", &fault.NoCommitError{Name: unborn, Unborn: true}
		}
		return "", "", &fault.NoCommitError{Name: name}
	}
	return commit, branch, nil
}
