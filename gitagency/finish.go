package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/landing"
)

// FinishRequest says which integration worktree to finish, and how.
type FinishRequest struct {
	Worktree string // as for Repository.Worktree
	Strategy string // one of Strategies; empty: agency.land.strategy, else merge
}

// FinishResult is the result of FinishWorktree.
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

func newFinishResult(f landing.FinishResult) FinishResult {
	return FinishResult{
		Worktree: f.Worktree, Name: f.Name, Commit: f.Commit, Before: f.Before, Branch: f.Branch, Strategy: f.Strategy,
		Commits: f.Commits, TrashRef: f.TrashRef, Outdated: convertAll(f.Outdated, newOutdatedSubmodule),
	}
}

// FinishWorktree merges the branch of a created integration worktree into its parent branch, with the guarantees of Land,
// and archives the worktree. If it is killed after the merge, a second call archives the worktree.
func (r *Repository) FinishWorktree(ctx context.Context, req FinishRequest) (FinishResult, error) {
	finished, err := landing.Finish(ctx, r.core, landing.FinishRequest(req))
	return newFinishResult(finished), publicError(err)
}

// Finishing is StateError.Other of an error that keeps a worktree from being finished, and not from being archived.
const Finishing = "finish"

func finishing(is bool) string {
	if is {
		return Finishing
	}
	return ""
}
