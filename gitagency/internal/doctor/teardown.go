package doctor

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
)

// Teardown ends the sandbox as Discard does: it ends the commands, keeps the content under a ref and removes the
// sandbox. It succeeds if the sandbox, or a part of it, is gone already.
func Teardown(ctx context.Context, s *sandbox.Sandbox) error {
	_, err := discard.Run(ctx, s.Repo, discard.Request{Query: s.ID})
	if fault.Is[*fault.BrokenError](err) { // a part is missing; repair, then discard the rest
		if _, err := Fix(ctx, s.Repo, s.ID); err != nil && !fault.Is[*fault.NotFoundError](err) {
			return err
		}
		_, err = discard.Run(ctx, s.Repo, discard.Request{Query: s.ID})
	}
	if fault.Is[*fault.NotFoundError](err) || fault.Is[*fault.EndedError](err) {
		return nil
	}
	return err
}
