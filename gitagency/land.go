package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/landing"
)

// CleanUpInBackground starts this program again as a detached process with the same environment, to remove the sandboxes
// that landings with LandRequest.DeferCleanup have left. argv[0] is the program name. The process runs in the caller's
// directory, or in the git common directory if the caller's directory was a sandbox that has landed.
func (r *Repository) CleanUpInBackground(argv []string) error {
	return landing.CleanUpInBackground(r.core, argv)
}

// WorkDirGone reports whether the caller's directory no longer exists, as after landing the sandbox that contains it.
func (r *Repository) WorkDirGone() bool {
	return landing.WorkDirGone(r.core)
}

// LandRequest says which sandbox to land, and how. The zero value of every field but ID is a good default.
type LandRequest = landing.Request

// LandResult is the result of Land.
type LandResult = landing.Result

// Land merges the work of a sandbox into the integration branch and updates the worktree that has the branch checked out,
// all or nothing. Then it removes the sandbox; a ref keeps the sandbox's commits unchanged.
//
// Nothing is changed if the error is an *UncommittedError, *NothingToLandError, *ConflictsError, *LocalChangesError,
// *BaseMovedError, *NotSubmittedError, *VerifyError, *KeepsMovingError, or reports a git operation in progress. The next
// command that takes the repository lock finishes or undoes a landing that was killed. A result returned with an error
// has the fields known so far, and a Commit only if the work has landed.
func (r *Repository) Land(ctx context.Context, req LandRequest) (LandResult, error) {
	return landing.Land(ctx, r.core, req)
}

// LandReadyResult is the result for one invocation of LandReady.
type LandReadyResult = landing.ReadyResult

// LandReady lands every submitted invocation of an integration worktree, in the order of submission, and continues past
// those that cannot land. It sets req.ID itself; the rest of req applies to each. An empty worktree means the one that
// contains the current directory. The error is about the queue as a whole; the result of each invocation holds its own.
func (r *Repository) LandReady(ctx context.Context, worktree string, req LandRequest) ([]LandReadyResult, error) {
	return landing.LandReady(ctx, r.core, worktree, req)
}

// UnlandRequest says which landing to revert.
type UnlandRequest = landing.UnlandRequest

// UnlandResult is the result of Unland.
type UnlandResult = landing.UnlandResult

// Unland reverts a landing with a commit on top of the integration branch that undoes its changes and nothing later. It
// gives the guarantees of Land. Later changes to the same lines are a *ConflictsError.
func (r *Repository) Unland(ctx context.Context, req UnlandRequest) (UnlandResult, error) {
	return landing.Unland(ctx, r.core, req)
}
