package creation

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/submodule"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// populateSubmodules checks out the submodules of a new sandbox that are initialised in the repository, unless upperEntry, git's
// entry of the sandbox in an upper directory, has their repositories; it may be empty.
func populateSubmodules(ctx context.Context, r *core.Repository, repo *git.Repo, id, upperEntry string) error {
	if layers, err := r.OverlayTree(id); err != nil || layers != nil || r.IsClone(id) { // only a snapshot can have brought submodules there
		return err
	}
	skipped, err := submodule.Populate(ctx, repo, submodule.PopulateRequest{
		Worktree: id, Tree: r.Store.SandboxTreePath(r.ID, id), ScratchDir: filepath.Join(r.Store.InvocationDir(r.ID, id), "submodule"),
		UpperEntry: upperEntry, TrustsConfig: r.AllSandboxesWalled,
	})
	for _, s := range skipped {
		if errors.As(s.Err, new(*submodule.NestedError)) {
			r.Warn("submodules inside of submodule %s are not checked out in the sandbox", quote.Path(s.Path))
			continue
		}
		r.Warn("submodule %s is not checked out in the sandbox: %v", quote.Path(s.Path), s.Err)
	}
	return err
}
