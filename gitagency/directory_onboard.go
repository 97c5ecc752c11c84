package gitagency

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// OnboardRequest says which directory to onboard.
type OnboardRequest struct {
	Dir   string          // required: an absolute path, or one seen from Options.Dir; links are followed
	First SnapshotRequest // how its first snapshot is taken
}

// Onboard gives a plain directory a repository of its own in the data directory and takes the first snapshot of it, all
// of that or nothing. One that is onboarded already is found, and no snapshot is taken. Of the options, Dir only says
// where a path is seen from.
//
// The directory is never written to. It must not lie in a repository, nor be one, which has snapshots by way of its
// sandboxes; nor touch the data directory, an integration tree or a sandbox, by any spelling. The errors for that are
// *InRepositoryError and *OverlapError.
func Onboard(ctx context.Context, req OnboardRequest, opts Options) (*Directory, error) {
	d, err := directory(ctx, req.Dir, opts)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(req.First.check(), d.check()); err != nil {
		return nil, err
	}
	repo, unlock, err := d.claim(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch err := d.open(ctx); {
	case err == nil:
		return d, nil
	case !is[*NotFoundError](err):
		return nil, err
	}
	ctx, cancel, err := d.repo.bounded(ctx, "onboarding")
	if err != nil {
		return nil, err
	}
	defer cancel()
	if err := d.onboard(ctx, repo, req.First); err != nil {
		return nil, fmt.Errorf("onboard %s: %w", d.Path, err)
	}
	return d, nil
}

// claim takes the lock of a directory of which there need not be a record yet.
func (d *Directory) claim(ctx context.Context) (repo *git.Repo, unlock func(), err error) {
	const tries = 10
	for range tries {
		if err := d.repo.store.EnsureDirectories(); err != nil {
			return nil, nil, err
		}
		if err := checkReal(d.repo.store.DirectoryGitDir(d.ID)); err != nil {
			return nil, nil, err
		}
		repo, unlock, err = d.repo.lock(ctx)
		if !errors.Is(err, fs.ErrNotExist) { // somebody takes the place away in which the lock is made
			return repo, unlock, err
		}
	}
	return repo, unlock, err
}

// onboard is the transaction. Without a record there is no directory, and whatever else there is goes when the next one
// comes.
func (d *Directory) onboard(ctx context.Context, repo *git.Repo, first SnapshotRequest) (err error) {
	tx := d.repo.begin("onboard")
	defer func() {
		if err != nil {
			rollback(ctx, tx)
		}
	}()
	tx.Undo("place", func(context.Context) error { return d.repo.store.RemoveDirectory(d.ID) }) // the lock has made it
	// 1. The repository.
	if err := tx.Step(ctx, "repository", func() error {
		if err := d.repo.store.EnsureDirectory(d.ID); err != nil {
			return err
		}
		return git.MakeBare(d.repo.CommonDir)
	}); err != nil {
		return err
	}
	// 2., 3. The first snapshot, and the ref that keeps it.
	if d.First, err = d.history().taken(ctx, tx, repo, first, nil); err != nil {
		return err
	}
	d.First.LeftOut = append(d.First.LeftOut, d.reserved()...)
	// 4. The commit point: the record.
	if err := tx.Step(ctx, "record", func() error {
		return d.repo.store.WriteDirectory(store.DirectoryMeta{
			SchemaVersion: store.SchemaVersion, DirectoryID: d.ID, Path: d.Path, OnboardedAt: d.repo.now(),
		})
	}); err != nil {
		return err
	}
	tx.Commit()
	return nil
}
