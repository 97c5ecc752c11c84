package status

import (
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// IsUntouchedOverlay reports whether a worktree is an overlay in which nothing was ever changed or staged since it was created, at a
// commit with the tree headTree. It looks at neither files nor index entries, so that it takes the same time however many there
// are; false means that only a scan can tell.
func IsUntouchedOverlay(r *git.Repo, s git.WorktreeSpec, headTree string) bool {
	if s.Overlay == nil || s.Dir == "" || s.Overlay.TreeID != headTree {
		return false
	}
	admin := r.AdminDir(s.Name)
	ours, err := os.Lstat(filepath.Join(admin, "index"))
	theirs, layerErr := os.Lstat(s.Overlay.Index)
	if err != nil || layerErr != nil || !os.SameFile(ours, theirs) { // a new worktree has a link to the index of the layer
		return false
	}
	if _, err := os.Lstat(filepath.Join(admin, "modules")); !git.IsNotExist(err) {
		return false
	}
	upper, err := beneath.Open(s.Overlay.Upper)
	if err != nil {
		return false
	}
	entries, _, err := upper.ReadDir(".")
	if closeErr := upper.Close(); err != nil || closeErr != nil {
		return false
	}
	for _, e := range entries {
		isGitFile, isOmitted := e.Name == ".git" && e.Kind.IsRegular(), s.Omit != "" && e.Name == s.Omit && e.Kind.IsDir()
		if !isGitFile && !isOmitted {
			return false
		}
	}
	return true
}
