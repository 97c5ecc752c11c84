package sandbox

import (
	"context"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
)

// isOnlyOfAgents reports whether no branch, tag or remote-tracking branch of the user has a commit: then an agent may have
// made it, and nothing in its tree, such as .lfsconfig, may decide what git on the host downloads.
func isOnlyOfAgents(ctx context.Context, r *core.Repository, commit string) (bool, error) {
	refs, err := r.Git.RefsContaining(ctx, commit, core.HeadsPrefix, "refs/tags/", "refs/remotes/")
	if err != nil {
		return false, err
	}
	for _, ref := range refs {
		if !strings.HasPrefix(ref, core.SandboxRef("")) {
			return false, nil
		}
	}
	return true, nil
}
