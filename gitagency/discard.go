package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
)

// DiscardResult reports what remains of a discarded invocation.
type DiscardResult = sandbox.DiscardResult

// Discard ends an invocation: it removes the tree and the branch and keeps the record and a trash ref to everything
// that was in the sandbox, including uncommitted and untracked files. Discarding twice is allowed and finishes an
// interrupted discard. Of an interrupted creation it removes every trace.
func (r *Repository) Discard(ctx context.Context, query string) (DiscardResult, error) {
	return sandbox.Discard(ctx, r.core, query)
}
