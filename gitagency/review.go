package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/landing"
)

// SubmitRequest says which invocation to submit for review.
type SubmitRequest = landing.SubmitRequest

// SubmitResult is the result of Submit.
type SubmitResult = landing.SubmitResult

// Submit marks the HEAD commit of a sandbox as ready for review and landing. Uncommitted work is an *UncommittedError, no
// work at all a *NothingToLandError; commits with unsafe objects, which must not land, are refused too. The sandbox stays
// as it is, and commands may go on in it. Submitting again is allowed: the submission keeps its place in the queue unless
// HEAD has moved.
func (r *Repository) Submit(ctx context.Context, req SubmitRequest) (SubmitResult, error) {
	return landing.Submit(ctx, r.core, req)
}

// InReview lists the invocations that wait for review or landing, in the order of submission. An empty worktree means all
// worktrees.
func (r *Repository) InReview(worktree string) ([]Invocation, error) {
	return landing.InReview(r.core, worktree)
}

// RejectRequest says which submission to reject, and why.
type RejectRequest = landing.RejectRequest

// RejectResult is the result of Reject.
type RejectResult = landing.RejectResult

// Reject sends a submission back for more work, with the reason. An invocation that is not in review is a
// *NotInReviewError.
func (r *Repository) Reject(ctx context.Context, req RejectRequest) (RejectResult, error) {
	return landing.Reject(ctx, r.core, req)
}
