package core

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// UpperDir returns the path of the directory that git in the sandbox of an invocation writes to; it may not exist. It is the
// upper directory of the overlay over the git directory, or, if the sandbox is a clone, a git directory of its own:
// behind walls InnerCloneDir, without them the one in the tree.
func (r *Repository) UpperDir(id string) string {
	if !r.IsClone(id) {
		return filepath.Join(r.Store.WallsDir(r.ID, id), "git", "upper")
	}
	if inner := r.InnerCloneDir(id); store.IsDir(inner) {
		return inner
	}
	return r.CloneGitDir(id)
}

// OwnGitDirs returns the directories to which git writes that runs in the sandbox of an invocation, as far as they exist: UpperDir, and,
// if the sandbox is a clone with walls, also the git directory in its tree.
func (r *Repository) OwnGitDirs(id string) []string {
	dirs := []string{r.UpperDir(id)}
	if r.IsClone(id) && dirs[0] != r.CloneGitDir(id) {
		dirs = append(dirs, r.CloneGitDir(id))
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return !store.IsDir(dir) })
}

// IsClone reports whether the sandbox of an invocation is a clone.
func (r *Repository) IsClone(id string) bool { return store.IsDir(r.Store.CloneDir(r.ID, id)) }

// CloneGitDir returns the path of the git directory in the tree of an invocation that is a clone.
func (r *Repository) CloneGitDir(id string) string {
	return changeset.CloneGitDir(changeset.Spec{Tree: r.Store.SandboxTreePath(r.ID, id)})
}

// InnerCloneDir returns the path of the git directory that is mounted on that of the tree behind the walls of an invocation that is a
// clone. The one in the tree, which git on the host uses, thus has no setting or hook of an agent.
func (r *Repository) InnerCloneDir(id string) string {
	return filepath.Join(r.Store.WallsDir(r.ID, id), "git", "own", ".git")
}

// PinnedRefs returns the refs that keep objects for a sandbox that is a clone or an overlay, by name; other sandboxes have none.
func PinnedRefs(ctx context.Context, repo *git.Repo, id string) (map[string]string, error) {
	return WorktreeBackend(repo).PinnedRefs(ctx, id)
}

// Unpin deletes the refs of PinnedRefs, when the sandbox is about to be removed.
func Unpin(ctx context.Context, repo *git.Repo, id string) error {
	return WorktreeBackend(repo).Unpin(ctx, id)
}
