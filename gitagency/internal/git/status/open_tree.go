package status

import (
	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// OpenTree opens the files of a worktree. Those of an overlay are read from its layers, without a mount.
func OpenTree(s git.WorktreeSpec) (*beneath.Dir, error) {
	if s.Overlay == nil {
		return beneath.Open(s.Dir)
	}
	return beneath.OpenLayers(s.Dir, s.Overlay.Dirs()...)
}

// openWriteDir opens the directory that receives the writes to a worktree, without the lower directories of an overlay. They
// never change, and have only files of a commit.
func openWriteDir(s git.WorktreeSpec) (*beneath.Dir, error) {
	if s.Overlay == nil {
		return beneath.Open(s.Dir)
	}
	return beneath.OpenLayers(s.Dir, s.Overlay.Upper)
}
