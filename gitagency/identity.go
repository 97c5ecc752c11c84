package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// Keys of the identity for commits of landings and syncs, where it differs from git's user.* identity.
const (
	userNameKey  = "agency.user.name"
	userEmailKey = "agency.user.email"
)

// landingSignatures returns the author and committer of a commit that git-agency makes for the user: agency.user.*,
// else the identity git would use, from the caller's environment and user.*, author.* and committer.*. The error is a
// *NoIdentityError or a *DateError in the cases in which git would not commit either.
func (r *Repository) landingSignatures(ctx context.Context) (author, committer object.Signature, err error) {
	return r.git.Signatures(ctx, object.IdentitySource{
		Name: r.git.Config.Value(canonicalKey(userNameKey)), Email: r.git.Config.Value(canonicalKey(userEmailKey)),
		Env: r.opts.Env, Now: r.opts.Now(),
	})
}
