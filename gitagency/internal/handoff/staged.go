package handoff

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/transport"
)

// keepStaged keeps blobs that the index needs, of a sandbox whose entry git does not list, from being pruned, before the branch moves
// to a commit. All blobs of the index on the host are in the tree of the branch, or kept already. So these have to be kept: blobs that
// are new in the index, unless a new commit adds them, and, if the new commit does not descend from the old one, all blobs that it does not
// have. If nothing but commits was added, no git is run.
func (e *Exchange) keepStaged(ctx context.Context, repo *git.Repo, staged sandboxIndex, commit string, checked transport.Checked) error {
	backend := core.WorktreeBackend(repo)
	if !backend.IsUnlisted(e.id) {
		return nil // git looks at its index
	}
	if checked.Descends {
		return backend.KeepStaged(ctx, e.id, changeset.Staged{Blobs: checked.LooseBlobs})
	}
	real, err := repo.ReadEditableIndex(ctx, repo.AdminDir(e.id), object.FormatOf(commit)) // it stays if that of the sandbox is not imported
	if err != nil {
		return err
	}
	if staged.index == nil {
		return backend.KeepStaged(ctx, e.id, changeset.StagedBlobs(commit, real.File))
	}
	return backend.KeepStaged(ctx, e.id, changeset.StagedBlobs(commit, real.File, *staged.index))
}
