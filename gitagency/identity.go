package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// The settings that say who the commits of landings and syncs are by, where that is somebody else than who commits.
const (
	nameKey  = "agency.user.name"
	emailKey = "agency.user.email"
)

// landingIdentity is who a commit is by that we make for the user: agency.user.*, else whoever git takes the user for,
// by the environment that we were called with and by user.*, author.* and committer.*. The error is a *NoIdentityError
// or a *DateError where git would not commit either.
func (r *Repository) landingIdentity(ctx context.Context) (author, committer git.Signature, err error) {
	return r.git.Signatures(ctx, git.Persona{
		Name: r.git.Config.Value(canonical(nameKey)), Email: r.git.Config.Value(canonical(emailKey)),
		Env: r.opts.Env, Now: r.opts.Now(),
	})
}
