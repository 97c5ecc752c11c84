package handoff

import (
	"context"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
)

// lockOverlay serializes imports and exports of one sandbox.
func (e *Exchange) lockOverlay(ctx context.Context) (release func(), err error) {
	timeout, err := e.repo.Settings.LockTimeout()
	if err != nil {
		return nil, err
	}
	held, err := lock.AcquireDirExclusive(ctx, e.lockDir(), timeout)
	if err != nil {
		return nil, err
	}
	return func() { _ = held.Close() }, nil
}

// lockDir returns the directory whose lock serializes imports and exports, and that takes temporary files.
func (e *Exchange) lockDir() string {
	if e.isOutside() {
		return e.dir
	}
	return filepath.Dir(e.upper)
}

// lockRepository takes the repository lock, unless the caller holds it.
func (e *Exchange) lockRepository(ctx context.Context) (*git.Repo, func(), error) {
	if e.LockedRepo != nil {
		return e.LockedRepo, func() {}, nil
	}
	return e.repo.LockAndRecover(ctx)
}
