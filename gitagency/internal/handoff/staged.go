package handoff

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/transport"
)

// keepStaged keeps blobs that the index needs, of a sandbox whose entry git does not list, from being pruned, before the branch moves
// from a commit, old, to another. All blobs of the index on the host are in the tree of the branch, or kept already. So these have to be kept: blobs that
// are new in the index, unless a new commit adds them, and, if the new commit does not descend from the old one, all blobs that it does not
// have. If nothing but commits was added, no git is run.
//
// Of a clone, it also keeps the old commit if the new one does not descend from it: a branch or stash that only the clone has may
// need it, and a "git gc" in the clone removes the objects that it can borrow.
func (e *Exchange) keepStaged(ctx context.Context, repo *git.Repo, staged sandboxIndex, old, commit string, checked transport.Checked) error {
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
	indexes := []index.File{real.File}
	if staged.index != nil {
		indexes = append(indexes, *staged.index)
	}
	kept := changeset.StagedBlobs(commit, indexes...)
	if e.repo.IsClone(e.id) {
		kept.Commits = []string{old}
	}
	return backend.KeepStaged(ctx, e.id, kept)
}
