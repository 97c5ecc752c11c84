package discard

import (
	"context"
	"errors"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/upload"
)

// RecoverUploads rolls back uploads that were killed half-way in a sandbox that is about to be captured, because
// captures do not see the files that an upload has set aside. Errors are only warnings: nothing in a sandbox may
// prevent its discard. Files that cannot go back to their place are moved to where a capture sees them.
func RecoverUploads(ctx context.Context, r *core.Repository, id string) {
	if !store.IsDir(r.Store.SandboxTreePath(r.ID, id)) {
		return
	}
	path, err := r.WrittenDir(id) // no command runs, so that an overlay may be changed; all that an upload moved is there
	if err != nil {
		r.Warn("sandbox %s: %v", id, err)
		return
	}
	tree, err := guard.OpenOwnTree(path)
	if err != nil {
		r.Warn("sandbox %s: %v", id, err)
		return
	}
	timeout, err := r.Settings.LockTimeout()
	if err == nil {
		err = upload.Recover(ctx, sandbox.Of(r, id).UploadTarget(tree), timeout)
	}
	if fault.Is[*upload.IncompleteUndoError](err) {
		r.Warn("sandbox %s: %v", id, err)
		var kept int
		var dirs []string
		kept, dirs, err = upload.RescueReplaced(ctx, sandbox.Of(r, id).UploadTarget(tree))
		if kept > 0 {
			r.Warn("sandbox %s: files that an interrupted put replaced are kept in %s (%d)", id, strings.Join(dirs, ", "), kept)
		}
	}
	if err := errors.Join(err, tree.Close()); err != nil {
		r.Warn("sandbox %s: %v", id, err)
	}
}
