package gitagency

import (
	"context"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/landing"
)

// SubmitRequest says which invocation to submit for review.
type SubmitRequest struct {
	Invocation string // required: id or unique prefix
	Note       string // message for the reviewer
}

// SubmitResult is the result of Submit.
type SubmitResult struct {
	ID            string    `json:"invocation_id"`
	Commit        string    `json:"submitted_commit"` // commit to review: HEAD of the sandbox
	At            time.Time `json:"submitted_at"`     // time of submission; determines the place in the queue
	Note          string    `json:"review_note"`
	Already       bool      `json:"already"` // this commit was in review already
	CommitChanged bool      `json:"renewed"` // another commit of the invocation was in review
}

// Submit marks the HEAD commit of a sandbox as ready for review and landing. Uncommitted work is an *UncommittedError; a
// sandbox without work fails with reason.NothingToLand or reason.NoNetChange; commits with unsafe objects are refused. The
// sandbox stays as it is, and commands may go on in it. Submitting again is allowed: the submission keeps its place in the
// queue unless HEAD has moved.
func (r *Repository) Submit(ctx context.Context, req SubmitRequest) (SubmitResult, error) {
	result, err := landing.Submit(ctx, r.core, landing.SubmitRequest(req))
	return SubmitResult(result), publicError(err)
}

// InReview lists the invocations that wait for review or landing, in the order of submission. An empty worktree means all
// worktrees.
func (r *Repository) InReview(worktree string) ([]Invocation, error) {
	waiting, err := landing.InReview(r.core, worktree)
	return convertAll(waiting, newInvocation), publicError(err)
}

// RejectRequest says which submission to reject, and why.
type RejectRequest struct {
	Invocation string // required: id or unique prefix
	Reason     string // required
}

// RejectResult is the result of Reject.
type RejectResult struct {
	ID     string    `json:"invocation_id"`
	Commit string    `json:"submitted_commit"` // commit that was rejected
	At     time.Time `json:"rejected_at"`
	Reason string    `json:"rejected_reason"`
}

// Reject sends a submission back for more work, with the reason. For an invocation that is not in review it fails with
// reason.NotInReview.
func (r *Repository) Reject(ctx context.Context, req RejectRequest) (RejectResult, error) {
	result, err := landing.Reject(ctx, r.core, landing.RejectRequest(req))
	return RejectResult(result), publicError(err)
}
