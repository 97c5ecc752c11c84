package discard

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/repair"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// removeSandbox removes the tree, the worktree entry and the branch of a discarded invocation. Each part may be gone
// already.
func removeSandbox(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], since time.Time, o core.TrashOptions) error {
	id, spec := entry.ID, sandbox.Spec(r, entry.ID)
	steps := r.StepsToRemoveTree(ctx, repo, TrashSubject(r, entry), since, o, func() error { return renewFinishedAt(r, id) })
	// An archive made of late changes is recorded before the files are deleted.
	steps = slices.Insert(steps, 1, core.Step{Name: "record-archive", Do: func() error {
		if !r.HasTrashArchive(id) || r.Store.Invocation(r.ID, id, nil).Record.HasTrashArchive {
			return nil
		}
		return recordArchive(r, id)
	}})
	steps = append(steps,
		core.Step{Name: "registration", Do: func() error { return core.WorktreeBackend(repo).Unregister(spec) }},
		core.Step{Name: "branch", Do: func() error { return DeleteKeptBranch(ctx, r, repo, spec, o) }},
		core.Step{Name: "leftovers", Do: func() error { return store.RemoveLeftovers(spec.Scratch) }},
		core.Step{Name: "sandbox-dir", Do: func() error { return r.Store.RemoveSandboxTree(r.ID, id) }},
	)
	return r.RunSteps(ctx, "discard", steps)
}

// withdrawSandbox removes the branch and the worktree entry of a discarded invocation and renames its tree, which
// RemoveEndedTree removes later. It only renames the tree if the worktree entry has changed since the capture, by a commit or
// a staged file: then withdrawn is false.
func withdrawSandbox(ctx context.Context, r *core.Repository, repo *git.Repo, entry store.Entry[store.InvocationMeta], since time.Time, o core.TrashOptions) (withdrawn bool, err error) {
	spec := sandbox.Spec(r, entry.ID)
	if err := r.RunSteps(ctx, "discard", []core.Step{{Name: "aside", Do: func() error { return MoveTreeAside(spec.Tree) }}}); err != nil {
		return false, err
	}
	if late, err := core.EntryModifiedSince(repo.AdminDir(entry.ID), since); err != nil || late { // after an error too, so that it is captured
		return false, nil
	}
	return true, r.RunSteps(ctx, "discard", []core.Step{
		{Name: "registration", Do: func() error { return core.WorktreeBackend(repo).BeginUnregister(spec) }},
		{Name: "branch", Do: func() error { return DeleteKeptBranch(ctx, r, repo, spec, o) }},
		{Name: "leftovers", Do: func() error { return store.RemoveLeftovers(spec.Scratch) }},
	})
}

// cannotHoldCommits reports whether a branch names an object that leads to no commit.
func cannotHoldCommits(branch git.Object) bool { return branch.Type == "blob" || branch.Type == "tree" }

// DeleteKeptBranch deletes the branch of a discarded sandbox, unless another worktree has it checked out. It fails if
// the trash ref does not contain all commits of the branch, and without Force if the branch names no commit.
func DeleteKeptBranch(ctx context.Context, r *core.Repository, repo *git.Repo, spec changeset.Spec, o core.TrashOptions) error {
	found, err := repo.Lookup(ctx, core.TrashRef(spec.ID), spec.Branch)
	if err != nil {
		return err
	}
	if err := core.Unpin(ctx, repo, spec.ID); err != nil {
		return err
	}
	kept, branch := found[0].OID, found[1].OID
	listing, err := worktree.ListWithoutGit(repo, func(name string) bool { return name == spec.ID })
	if err != nil {
		return err
	}
	if path := CheckedOutElsewhere(listing.Worktrees, spec); path != "" {
		r.Warn("branch %s is checked out at %s; it stays", core.ShortBranch(spec.Branch), path)
		return nil
	}
	if branch == "" {
		return errors.Join(repair.DeleteBrokenRef(ctx, repo, spec.Branch), repo.RemoveRefLeftovers(ctx, spec.Branch))
	}
	if cannotHoldCommits(found[1]) {
		name, why := "branch "+core.ShortBranch(spec.Branch), "names the "+found[1].Type+" "+branch+", not a commit"
		if !o.Force {
			return errors.New(name + " " + why + "; 'git agency discard --force " + spec.ID + "' deletes it")
		}
		o.Lose(name, "it "+why)
		return core.WorktreeBackend(repo).DeleteBranch(ctx, spec, branch)
	}
	safe, err := repo.IsAncestor(ctx, branch, kept)
	if err != nil {
		return err
	}
	if !safe {
		return errors.New("branch " + core.ShortBranch(spec.Branch) + " has commits that are not in " + core.TrashRef(spec.ID) + "; the branch is kept")
	}
	return core.WorktreeBackend(repo).DeleteBranch(ctx, spec, branch)
}

// CheckedOutElsewhere returns the path of another worktree that has the branch of the sandbox checked out; empty when
// there is none.
func CheckedOutElsewhere(worktrees []worktree.Worktree, spec changeset.Spec) string {
	for _, w := range worktrees {
		if w.Branch == spec.Branch && w.Path != spec.Tree {
			return w.Path
		}
	}
	return ""
}

// hasUnkeptWork reports whether the invocation still has a tree, a branch whose commits the trash ref does not
// contain, or a git worktree entry that may lead to commits although its tree is gone. This happens after an
// interrupted discard, or when an agent continued to write.
func hasUnkeptWork(ctx context.Context, r *core.Repository, repo *git.Repo, id string) (bool, error) {
	found, err := repo.Lookup(ctx, core.TrashRef(id), core.SandboxRef(id))
	if err != nil {
		return false, err
	}
	held := false
	if !cannotHoldCommits(found[1]) {
		if held, err = repo.IsAncestor(ctx, found[1].OID, found[0].OID); err != nil {
			return false, err
		}
	}
	registered, err := worktree.RegisteredTrees(repo)
	if err != nil {
		return false, err
	}
	spec := sandbox.Spec(r, id)
	// If the tree was renamed aside, removing it captures the entry too.
	entry := !store.IsDir(store.WithdrawnPath(spec.Tree)) && core.WorktreeBackend(repo).IsRegistered(spec, registered)
	return store.IsDir(spec.Tree) || !found[1].Missing() && !held || entry, nil
}
