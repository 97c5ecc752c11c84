package landing

import (
	"context"
	"errors"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/update"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// FinishRequest says which integration worktree to finish, and how.
type FinishRequest struct {
	Worktree string // as for Repository.Worktree
	Strategy string // one of Strategies; empty: agency.land.strategy, else merge
}

// FinishResult is the result of Finish.
type FinishResult struct {
	Worktree string `json:"worktree_id"`
	Name     string `json:"name"`
	Commit   string `json:"commit"`    // commit of the parent branch that has the work
	Before   string `json:"before"`    // commit of the parent branch before
	Branch   string `json:"branch"`    // the parent branch
	Strategy string `json:"strategy"`  // strategy used; empty if the parent branch had all of the work
	Commits  int    `json:"commits"`   // commits that were merged
	TrashRef string `json:"trash_ref"` // ref that keeps content of the tree that was in no branch; empty if there was none

	Outdated []OutdatedSubmodule `json:"-"` // submodules in the worktree of the parent branch that are not at the commits that were merged
}

// Finish merges the branch of a created integration worktree into its parent branch, in the transaction of a landing, and
// archives the worktree. It refuses a tree with uncommitted files and a worktree with live sandboxes. If it is killed after
// the merge, a second Finish archives the worktree.
func Finish(ctx context.Context, r *core.Repository, req FinishRequest) (FinishResult, error) {
	strategy, err := r.Settings.Strategy()
	if err != nil {
		return FinishResult{}, err
	}
	if req.Strategy == "" {
		req.Strategy = strategy
	}
	if err := settings.CheckStrategy(req.Strategy); err != nil {
		return FinishResult{}, err
	}
	wt, err := r.Worktree(req.Worktree)
	if err != nil {
		return FinishResult{}, err
	}
	repo, unlock, err := r.LockAndRecover(ctx)
	if err != nil {
		return FinishResult{}, err
	}
	defer unlock()
	ctx, cancel, err := r.Settings.WithOperationTimeout(ctx, "finish")
	if err != nil {
		return FinishResult{}, err
	}
	defer cancel()
	finished, err := finishLocked(ctx, r, repo, wt.ID, req)
	for again := 1; again <= maxLandRetries && branchMoved(err); again++ {
		if err = waitBackoff(ctx, again, landBackoff); err == nil {
			finished, err = finishLocked(ctx, r, repo, wt.ID, req)
		}
	}
	if branchMoved(err) {
		err = &fault.KeepsMovingError{ID: wt.ID, Branch: wt.ParentBranch, Times: maxLandRetries + 1}
	}
	if err != nil {
		return finished, fmt.Errorf("finish worktree %q: %w", wt.Name, err)
	}
	return finished, nil
}

// finishLocked is Finish for a caller that holds the repository lock.
func finishLocked(ctx context.Context, r *core.Repository, repo *git.Repo, id string, req FinishRequest) (FinishResult, error) {
	if err := Recover(ctx, r, repo); err != nil {
		return FinishResult{}, err
	}
	wt := r.WorktreeFromEntry(r.Store.Worktree(r.ID, id, nil)) // may have changed while waiting for the lock
	if err := checkFinishable(ctx, r, repo, wt); err != nil {
		return FinishResult{}, err
	}
	to, err := r.FindIntegrationTarget(ctx, repo, core.Invocation{WorktreeID: wt.ID, IntegrationBranch: core.HeadsPrefix + wt.ParentBranch, StartedAt: wt.CreatedAt})
	var missing *fault.MissingBranchError
	if errors.As(err, &missing) {
		missing.Operation, missing.Arguments, missing.Finished = "merge", wt.Branch, fault.FinishedWorktree{Name: wt.Name, Tree: wt.TreePath}
	}
	if err != nil {
		return FinishResult{}, err
	}
	finished, err := mergeIntoParent(ctx, r, repo, wt, to, req)
	if err != nil {
		nameWorktree(err, wt)
		return finished, err
	}
	removed, err := r.RemoveWorktreeLocked(context.WithoutCancel(ctx), repo, wt, false)
	finished.TrashRef = removed.TrashRef
	return finished, err
}

// checkFinishable refuses a worktree that has no parent branch, or whose tree or sandboxes have work that would not be
// merged.
func checkFinishable(ctx context.Context, r *core.Repository, repo *git.Repo, wt core.Worktree) error {
	if err := wt.CheckUsable(); err != nil {
		return err
	}
	switch {
	case wt.Adopted:
		return &fault.NoParentError{Name: wt.Name, Path: wt.TreePath}
	case wt.ParentBranch == "":
		return &fault.NoParentError{Name: wt.Name, Path: wt.TreePath, Branch: wt.Branch}
	}
	live, err := r.LiveInvocations(wt)
	if err != nil {
		return err
	}
	if len(live) > 0 {
		return &fault.LiveSandboxesError{Name: wt.Name, Invocations: live, Finishing: true}
	}
	captured, err := r.CaptureDryRun(ctx, repo, wt.CaptureSubject())
	if err != nil {
		return err
	}
	if captured.Dirty {
		return &fault.DirtyError{Path: wt.TreePath, Finishing: true}
	}
	return nil
}

// mergeIntoParent moves the parent branch to a commit that has the work of the worktree, with the checks of a landing.
func mergeIntoParent(ctx context.Context, r *core.Repository, repo *git.Repo, wt core.Worktree, to core.IntegrationTarget, req FinishRequest) (done FinishResult, err error) {
	done = FinishResult{Worktree: wt.ID, Name: wt.Name, Commit: to.Commit, Before: to.Commit, Branch: wt.ParentBranch}
	tip, err := repo.Tip(ctx, core.HeadsPrefix+wt.Branch)
	if err == nil && tip == "" {
		err = &fault.NoCommitError{Name: wt.Branch}
	}
	if err != nil {
		return done, err
	}
	merger, err := merge.NewMerger(repo, to.Commit)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, merger.Close()) }()
	merger.Trusted = r.AllSandboxesWalled()
	l := &landAttempt{
		r: r, repo: repo, req: Request{Strategy: req.Strategy}, s: sandbox.Of(r, wt.ID), finishes: &wt, target: to, merger: merger, tip: tip,
		entry: store.Entry[store.InvocationMeta]{ID: wt.ID, Record: store.InvocationMeta{BaseCommit: to.Commit}},
	}
	if l.commits, err = merger.CommitsBetween(ctx, to.Commit, tip); err != nil {
		return done, l.fsckError(ctx, err)
	}
	if err := l.fsckCommits(ctx); err != nil {
		return done, err
	}
	if err := l.makeCommit(ctx); err != nil {
		return done, err
	}
	if l.newTip == "" {
		return done, nil
	}
	_, err = runPublication(ctx, r, publication{
		merger: merger,
		branchUpdate: update.Update{
			Branch: to.Branch, Old: to.Commit, New: l.newTip, Reason: "agency: finish " + wt.Name,
			GitDir: to.CheckoutGitDir, Worktree: to.CheckoutTree, Trusted: merger.Trusted,
		},
		journal: store.LandingJournal{InvocationID: wt.ID, Verb: verbFinish, Strategy: req.Strategy, Tip: tip},
	})
	if err == nil {
		done.Commit, done.Strategy, done.Commits, done.Outdated = l.newTip, req.Strategy, l.commitCount, l.outdatedSubmodules(ctx)
	}
	return done, err
}

// nameWorktree changes an error about the work of a sandbox, which the checks of a landing return, to one about the work of
// the worktree.
func nameWorktree(err error, wt core.Worktree) {
	finished := fault.FinishedWorktree{Name: wt.Name, Tree: wt.TreePath}
	var (
		conflicts *fault.ConflictsError
		invalid   *fault.InvalidObjectError
		gitlink   *fault.UnnamedGitlinkError
		commit    *fault.SubmoduleCommitError
	)
	switch {
	case errors.As(err, &conflicts):
		conflicts.Worktree, conflicts.Tree, conflicts.Branch = wt.Name, wt.TreePath, wt.ParentBranch
	case errors.As(err, &invalid):
		invalid.Finished = finished
	case errors.As(err, &gitlink):
		gitlink.Finished = finished
	case errors.As(err, &commit):
		commit.Finished = finished
	}
}
