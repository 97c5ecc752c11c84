package gitagency

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// Snapshot takes a snapshot of the directory, as TakeSnapshot does for a sandbox: all files that are not ignored, except
// those listed in LeftOut. If nothing has changed since the last snapshot, it returns that one. The directory's .gitignore
// and .gitattributes files and the user's git configuration apply as in git.
func (d *Directory) Snapshot(ctx context.Context, req SnapshotRequest) (Snapshot, error) {
	if err := req.check(); err != nil {
		return Snapshot{}, err
	}
	repo, unlock, err := d.lock(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	defer unlock()
	if err := d.checkPath(); err != nil {
		return Snapshot{}, err
	}
	ctx, cancel, err := d.repo.withOperationTimeout(ctx, "snapshot")
	if err != nil {
		return Snapshot{}, err
	}
	defer cancel()
	snapshot, err := d.series().take(ctx, repo, req)
	if err != nil {
		return Snapshot{}, fmt.Errorf("snapshot of %s: %w", d.Path, err)
	}
	snapshot.LeftOut = append(snapshot.LeftOut, d.reservedPaths()...)
	return snapshot, nil
}

// reservedPaths lists the paths that no snapshot contains because their names are reserved: a checkout must not look like
// one of our trees.
func (d *Directory) reservedPaths() []LeftOut {
	if _, err := os.Lstat(filepath.Join(d.Path, guard.AgencyDir)); err != nil {
		return nil
	}
	return []LeftOut{{Path: guard.AgencyDir, Reason: LeftOutReserved}}
}

// Snapshots lists the snapshots of the directory, the newest last.
func (d *Directory) Snapshots(ctx context.Context) ([]SnapshotInfo, error) {
	if err := d.checkOnboarded(); err != nil {
		return nil, err
	}
	return d.repo.Snapshots(ctx, SnapshotsRequest{})
}

// VerifySnapshot rehashes every object of a snapshot, as Repository.VerifySnapshot does.
func (d *Directory) VerifySnapshot(ctx context.Context, req VerifySnapshotRequest) (VerifySnapshotResult, error) {
	if err := d.checkOnboarded(); err != nil {
		return VerifySnapshotResult{}, err
	}
	return d.repo.VerifySnapshot(ctx, req)
}

// CheckoutSnapshot creates a directory with exactly the files of a snapshot, as Repository.CheckoutSnapshot does. It must
// not overlap the directory that the snapshot is of.
func (d *Directory) CheckoutSnapshot(ctx context.Context, req CheckoutRequest) (CheckoutResult, error) {
	if err := d.checkOnboarded(); err != nil {
		return CheckoutResult{}, err
	}
	if req.Dir != "" {
		path, err := resolveFrom(d.repo.callerDir, req.Dir)
		if err != nil {
			return CheckoutResult{}, err
		}
		place, err := guard.Locate(path)
		if err != nil {
			return CheckoutResult{}, &UnsafePathError{Path: path, Why: err.Error()}
		}
		if rel := place.Relation(d.Path); rel != guard.Disjoint {
			return CheckoutResult{}, &OverlapError{Path: path, Relation: string(rel), Other: d.Path}
		}
	}
	return d.repo.CheckoutSnapshot(ctx, req)
}

// DiffSnapshots compares two states of the directory, as Repository.DiffSnapshots does for a sandbox: any two snapshots,
// DiffBase, which is the first snapshot, and DiffWork, the current files. DiffRequest.Invocation must be empty.
func (d *Directory) DiffSnapshots(ctx context.Context, req DiffRequest) (_ Diff, err error) {
	if req.Invocation != "" {
		return Diff{}, &InvalidError{What: "invocation", Value: req.Invocation, Want: "none: a directory has none"}
	}
	if err := req.check([]string{DiffBase, DiffWork}); err != nil {
		return Diff{}, err
	}
	if err := d.checkOnboarded(); err != nil {
		return Diff{}, err
	}
	works := slices.Contains([]string{req.From, req.To}, DiffWork)
	if works {
		if err := d.checkPath(); err != nil {
			return Diff{}, err
		}
	}
	c := &comparison{r: d.repo, treeName: d.Path, subject: d.subject(""), anyObject: d.FirstSnapshot.ID}
	c.stateLookups = map[string]func(context.Context) (string, error){
		DiffBase: func(context.Context) (string, error) {
			if d.FirstSnapshot.ID == "" {
				return "", &NotFoundError{Kind: "snapshot", Query: DiffBase}
			}
			return d.FirstSnapshot.ID, nil
		},
		DiffWork: c.captureWork,
	}
	defer func() { err = errors.Join(err, c.close()) }()
	difference, err := c.diff(ctx, req)
	if err == nil && works {
		difference.LeftOut = append(difference.LeftOut, d.reservedPaths()...)
	}
	return difference, err
}
