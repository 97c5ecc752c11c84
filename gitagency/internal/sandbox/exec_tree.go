package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/upload"
)

// execTree is the tree in which a command runs.
type execTree struct {
	sandbox *Sandbox
	tree    *guard.Tree
	cwd     string // as in ExecOptions

	dir     *os.File // working directory of the command
	path    string   // its path
	mounted *guard.Tree
}

// enter prepares the tree for a command, and opens its working directory.
func (t *execTree) enter(ctx context.Context) (err error) {
	// Roll back an upload that was killed. One that is still running is left alone.
	if err := upload.Recover(ctx, t.sandbox.UploadTarget(t.tree), 0); err != nil && !fault.Is[*fault.LockTimeoutError](err) {
		t.sandbox.Repo.Warn("sandbox %s: %v", t.sandbox.ID, err)
	}
	if t.dir, t.path, err = t.tree.OpenWorkDir(t.cwd); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	return nil
}

// enterMounted is enter for a tree that exists only behind the walls of a session.
func (t *execTree) enterMounted(ctx context.Context, in *nsSession) (err error) {
	if t.mounted, err = in.openTree(); err != nil {
		return &fault.SetupError{ID: t.sandbox.ID, Err: err}
	}
	t.tree = t.mounted
	return t.enter(ctx)
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
