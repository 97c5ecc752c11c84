package worktree

import (
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
)

// RepointUpperEntry writes the path of a moved worktree, as its real entry records it, into the copy of the entry in
// the upper directory: git prunes an entry whose worktree does not exist. The overlay must not be mounted.
func RepointUpperEntry(r *git.Repo, upper, name string) error {
	entry := filepath.Join("worktrees", name)
	tree := RegisteredTree(r, name)
	had, err := overlay.ReadUpperFile(upper, filepath.Join(entry, "gitdir"), 1<<16)
	if err != nil || !had.Found || tree == "" || treeFromGitdir(r.AdminDir(name), had.Data) == tree {
		return nil // an invalid entry is reported when it is imported
	}
	return overlay.ReplaceUpperFile(upper, entry, "gitdir", []byte(filepath.Join(tree, ".git")+"\n"))
}
