package core

import (
	"context"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// HeldLock is the repository lock of a command that releases it for a while.
type HeldLock struct {
	// Repo is the repository for the whole command. Its git children inherit the lock or, while that is released, the file that
	// was given to Release.
	Repo *git.Repo

	repository *Repository
	unlock     func() // nil while the lock is released
}

// HoldLock is LockAndRecover for a command that releases the lock for a while.
func (r *Repository) HoldLock(ctx context.Context) (*HeldLock, error) {
	repo, unlock, err := r.LockAndRecover(ctx)
	if err != nil {
		return nil, err
	}
	return &HeldLock{Repo: repo, repository: r, unlock: unlock}, nil
}

// Release releases the lock. Other commands then know by the lock on file, which git children inherit, what they must leave alone.
func (l *HeldLock) Release(file *os.File) {
	l.Repo.Inherit = []*os.File{file}
	l.Close()
}

// Retake takes the lock again, if it was released. It waits longer than the user wanted to wait for the lock if that is very
// short: giving up now would undo work that is already done.
func (l *HeldLock) Retake(ctx context.Context) error {
	if l.unlock != nil {
		return nil
	}
	timeout, err := l.repository.Settings.LockTimeout()
	if err != nil {
		return err
	}
	if timeout >= 0 {
		timeout = max(timeout, l.repository.Opts.RelockTimeout)
	}
	repo, unlock, err := l.repository.LockWithTimeout(ctx, timeout)
	if err != nil {
		return err
	}
	l.Repo.Inherit, l.unlock = repo.Inherit, unlock
	return nil
}

// Close releases the lock at the end.
func (l *HeldLock) Close() {
	if l.unlock != nil {
		l.unlock()
		l.unlock = nil
	}
}
