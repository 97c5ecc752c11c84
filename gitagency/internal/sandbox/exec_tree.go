package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/upload"
)

// execTree is the tree in which a command runs.
type execTree struct {
	sandbox   *Sandbox
	tree      *guard.Tree
	isOverlay bool             // it exists only behind walls
	paths     []store.PathMeta // directories in one of which the command runs instead of the tree, if there are any; they exist only behind walls
	cwd       string           // as in ExecOptions

	dir     *os.File // working directory of the command
	path    string   // its path
	mounted *guard.Tree
}

// enter prepares the tree for a command, and opens its working directory. For an overlay, enterMounted does that.
func (t *execTree) enter(ctx context.Context) (err error) {
	if (t.isOverlay || len(t.paths) > 0) && t.mounted == nil {
		return nil
	}
	// Roll back an upload that was killed. One that is still running is left alone.
	if len(t.paths) == 0 { // nothing is uploaded to plain directories
		if err := upload.Recover(ctx, t.sandbox.UploadTarget(t.tree), 0); err != nil && !fault.Is[*fault.LockTimeoutError](err) {
			t.sandbox.Repo.Warn("sandbox %s: %v", t.sandbox.ID, err)
		}
	}
	if t.dir, t.path, err = t.tree.OpenWorkDir(t.cwd); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	return nil
}

// enterMounted is enter for an overlay, which exists behind the walls of a session. For other trees it does nothing.
func (t *execTree) enterMounted(ctx context.Context, in *nsSession) (err error) {
	switch {
	case len(t.paths) > 0:
		t.mounted, err = t.openPath(ctx, in)
	case t.isOverlay:
		t.mounted, err = in.openTree()
	default:
		return nil
	}
	if err != nil {
		return &fault.SetupError{ID: t.sandbox.ID, Err: err}
	}
	t.tree = t.mounted
	return t.enter(ctx)
}

// openPath opens the plain directory that contains the working directory of the command, as commands see it: the first one, unless
// the working directory is absolute and in another.
func (t *execTree) openPath(ctx context.Context, in *nsSession) (*guard.Tree, error) {
	at := t.paths[0].Path
	for _, p := range t.paths {
		if guard.IsOrContains(p.Path, filepath.Clean(t.cwd)) {
			at = p.Path
		}
	}
	dir, err := in.ns.OpenDir(ctx, at)
	if err != nil {
		return nil, err
	}
	tree, err := guard.OpenMountedTree(dir, at)
	return tree, errors.Join(err, dir.Close())
}

// leave closes what was opened, because an overlay that is in use cannot be unmounted, and leaves the session.
func (t *execTree) leave(ctx context.Context, in *nsSession, force <-chan struct{}) {
	t.close()
	in.leave(ctx, force)
}

// close closes what was opened. Further calls do nothing.
func (t *execTree) close() {
	var errs []error
	if t.dir != nil {
		errs = append(errs, t.dir.Close())
	}
	if t.mounted != nil {
		errs = append(errs, t.mounted.Close())
	}
	t.dir, t.mounted = nil, nil
	if err := errors.Join(errs...); err != nil {
		t.sandbox.Repo.Warn("sandbox %s: %v", t.sandbox.ID, err)
	}
}
