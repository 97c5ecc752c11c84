package core

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// LandingSignatures returns the author and committer of a commit that git-agency makes for the user: agency.user.*,
// else the identity git would use, from the caller's environment and user.*, author.* and committer.*. The error is a
// *fault.NoIdentityError or a *fault.DateError in the cases in which git would not commit either.
func (r *Repository) LandingSignatures(ctx context.Context) (author, committer object.Signature, err error) {
	return r.Git.Signatures(ctx, object.IdentitySource{
		Name: r.Git.Config.Value(settings.CanonicalKey(settings.UserNameKey)), Email: r.Git.Config.Value(settings.CanonicalKey(settings.UserEmailKey)),
		Env: r.Opts.Env, Now: r.Opts.Now(),
	})
}
