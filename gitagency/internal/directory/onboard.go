package directory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// OnboardRequest says which directory to onboard.
type OnboardRequest struct {
	Dir           string                // required: absolute path, or relative to Options.Dir; symlinks are followed
	FirstSnapshot snapshots.TakeRequest // options of its first snapshot
}

// Onboard creates a bare repository for a plain directory in the data directory and takes the first snapshot, all or
// nothing. A directory that is onboarded already is opened, without a new snapshot. Options.Dir only serves to resolve a
// relative path.
//
// Onboard never writes to the directory. The directory must not be in a repository or be one (*InRepositoryError): use
// sandboxes for snapshots there. Nor may it overlap the data directory, an integration tree or a sandbox, by any spelling
// (*OverlapError).
func Onboard(ctx context.Context, req OnboardRequest, opts core.Options) (*Directory, error) {
	d, err := resolveDirectory(ctx, req.Dir, opts)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(req.FirstSnapshot.Check(), d.checkPath()); err != nil {
		return nil, err
	}
	repo, unlock, err := d.createAndLock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch err := d.load(ctx); {
	case err == nil:
		return d, nil
	case !fault.Is[*fault.NotFoundError](err):
		return nil, err
	}
	ctx, cancel, err := d.repo.Settings.WithOperationTimeout(ctx, "onboarding")
	if err != nil {
		return nil, err
	}
	defer cancel()
	if err := d.onboard(ctx, repo, req.FirstSnapshot); err != nil {
		return nil, fmt.Errorf("onboard %s: %w", d.Path, err)
	}
	return d, nil
}

// createAndLock takes the lock of a directory that may not have a record yet.
func (d *Directory) createAndLock(ctx context.Context) (repo *git.Repo, unlock func(), err error) {
	const tries = 10
	for range tries {
		repo, unlock, err = d.createAndLockOnce(ctx)
		if !errors.Is(err, fs.ErrNotExist) { // another process is removing a directory that contains the lock
			return repo, unlock, err
		}
	}
	return repo, unlock, err
}

func (d *Directory) createAndLockOnce(ctx context.Context) (repo *git.Repo, unlock func(), err error) {
	if err := d.repo.Store.EnsureDirectories(); err != nil {
		return nil, nil, err
	}
	if err := core.CheckParentResolved(d.repo.Store.DirectoryGitDir(d.ID)); err != nil {
		return nil, nil, err
	}
	return d.repo.LockAndRecover(ctx)
}

// onboard is the transaction. Until the record is written the directory is not onboarded; leftovers of a killed onboard are
// removed by the next one.
func (d *Directory) onboard(ctx context.Context, repo *git.Repo, first snapshots.TakeRequest) (err error) {
	tx := d.repo.BeginTx("onboard")
	defer func() {
		if err != nil {
			core.RollbackTx(ctx, tx)
		}
	}()
	tx.Undo("place", func(context.Context) error { return d.repo.Store.RemoveDirectory(d.ID) }) // created by the lock
	// 1. The bare repository.
	if err := tx.Step(ctx, "repository", func() error {
		if err := d.repo.Store.PrepareDirectory(d.ID); err != nil {
			return err
		}
		return git.InitBare(d.repo.CommonDir)
	}); err != nil {
		return err
	}
	// 2. and 3. The first snapshot, and the ref that keeps it.
	if d.FirstSnapshot, err = d.series().TakeSteps(ctx, tx, repo, first, nil); err != nil {
		return err
	}
	d.FirstSnapshot.LeftOut = append(d.FirstSnapshot.LeftOut, d.reservedPaths()...)
	// 4. The commit point: the record.
	if err := tx.Step(ctx, "record", func() error {
		return d.repo.Store.WriteDirectory(store.DirectoryMeta{
			SchemaVersion: store.SchemaVersion, DirectoryID: d.ID, Path: d.Path, OnboardedAt: d.repo.Now(),
		})
	}); err != nil {
		return err
	}
	tx.Commit()
	return nil
}
