package creation

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// UndoInterrupted removes what an interrupted Start left behind.
func UndoInterrupted(ctx context.Context, r *core.Repository, repo *git.Repo, id string, intent store.Intent) error {
	if _, populated := store.FirstExisting(filepath.Join(repo.AdminDir(id), "modules")); populated || intent.Command == restoreVerb {
		// The tree is compared with its commit only if it has a marker. This one has files of an archive too, which
		// the trash still holds, or of submodules, whose repositories have them; no command ever ran in it.
		if err := durable.Remove(guard.Sandbox.Path(r.Store.SandboxTreePath(r.ID, id))); err != nil && !errors.Is(err, syscall.ENOTDIR) {
			return err
		}
		if err := durable.RemoveTree(r.Store.WallsDir(r.ID, id)); err != nil { // the repositories of submodules of a restore
			return err
		}
	}
	// Nothing ran in the git directory of a clone behind walls, nor over the copies of plain directories.
	if r.IsClone(id) || r.IsPaths() {
		if err := durable.RemoveTree(r.Store.WallsDir(r.ID, id)); err != nil {
			return err
		}
	}
	made := sandbox.Spec(r, id)
	made.Base, made.Tip, made.FilesCommit = intent.BaseCommit, intent.Tip, intent.FromSnapshot
	return r.UndoCreation(ctx, repo, r.Store.InvocationDir(r.ID, id), made)
}
