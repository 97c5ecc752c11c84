package directory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/diff"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
)

// Snapshot takes a snapshot of the directory, as TakeSnapshot does for a sandbox: all files that are not ignored, except
// those listed in LeftOut. If nothing has changed since the last snapshot, it returns that one. The directory's .gitignore
// and .gitattributes files and the user's git configuration apply as in git.
func (d *Directory) Snapshot(ctx context.Context, req snapshots.TakeRequest) (snapshots.Snapshot, error) {
	if err := req.Check(); err != nil {
		return snapshots.Snapshot{}, err
	}
	repo, unlock, err := d.lock(ctx)
	if err != nil {
		return snapshots.Snapshot{}, err
	}
	defer unlock()
	if err := d.checkPath(); err != nil {
		return snapshots.Snapshot{}, err
	}
	ctx, cancel, err := d.repo.Settings.WithOperationTimeout(ctx, "snapshot")
	if err != nil {
		return snapshots.Snapshot{}, err
	}
	defer cancel()
	snapshot, err := d.series().Take(ctx, repo, req)
	if err != nil {
		return snapshots.Snapshot{}, fmt.Errorf("snapshot of %s: %w", d.Path, err)
	}
	snapshot.LeftOut = append(snapshot.LeftOut, d.reservedPaths()...)
	return snapshot, nil
}

// reservedPaths lists the paths that no snapshot contains because their names are reserved: a checkout must not look like
// one of our trees.
func (d *Directory) reservedPaths() []snapshots.LeftOut {
	if _, err := os.Lstat(filepath.Join(d.Path, guard.AgencyDir)); err != nil {
		return nil
	}
	return []snapshots.LeftOut{{Path: guard.AgencyDir, Reason: snapshots.LeftOutReserved}}
}

// Snapshots lists the snapshots of the directory, the newest last.
func (d *Directory) Snapshots(ctx context.Context) ([]snapshots.Info, error) {
	if err := d.checkOnboarded(); err != nil {
		return nil, err
	}
	return snapshots.Describe(ctx, d.repo, snapshots.DescribeRequest{})
}

// VerifySnapshot rehashes every object of a snapshot, as snapshots.Verify does.
func (d *Directory) VerifySnapshot(ctx context.Context, req snapshots.VerifyRequest) (snapshots.VerifyResult, error) {
	if err := d.checkOnboarded(); err != nil {
		return snapshots.VerifyResult{}, err
	}
	return snapshots.Verify(ctx, d.repo, req)
}

// CheckoutSnapshot creates a directory with exactly the files of a snapshot, as snapshots.Checkout does. It must
// not overlap the directory that the snapshot is of.
func (d *Directory) CheckoutSnapshot(ctx context.Context, req snapshots.CheckoutRequest) (snapshots.CheckoutResult, error) {
	if err := d.checkOnboarded(); err != nil {
		return snapshots.CheckoutResult{}, err
	}
	if req.Dir != "" {
		path, err := guard.ResolveFrom(d.repo.CallerDir, req.Dir)
		if err != nil {
			return snapshots.CheckoutResult{}, err
		}
		place, err := guard.Locate(path)
		if err != nil {
			return snapshots.CheckoutResult{}, &fault.UnsafePathError{Path: path, Why: err.Error()}
		}
		if rel := place.Relation(d.Path); rel != guard.Disjoint {
			return snapshots.CheckoutResult{}, &fault.OverlapError{Path: path, Relation: string(rel), Other: d.Path}
		}
	}
	return snapshots.Checkout(ctx, d.repo, req)
}

// DiffSnapshots compares two states of the directory, as diff.OfSandbox does for a sandbox: any two snapshots,
// DiffBase, which is the first snapshot, and DiffWork, the current files. DiffRequest.Invocation must be empty.
func (d *Directory) DiffSnapshots(ctx context.Context, req diff.Request) (_ diff.Diff, err error) {
	if req.Invocation != "" {
		return diff.Diff{}, &fault.InvalidError{What: "invocation", Value: req.Invocation, Want: "none: a directory has no invocations"}
	}
	if err := req.Check([]string{diff.Base, diff.Work}); err != nil {
		return diff.Diff{}, err
	}
	if err := d.checkOnboarded(); err != nil {
		return diff.Diff{}, err
	}
	works := slices.Contains([]string{req.From, req.To}, diff.Work)
	if works {
		if err := d.checkPath(); err != nil {
			return diff.Diff{}, err
		}
	}
	c := &diff.Comparison{Repo: d.repo, TreeName: d.Path, AnyObject: d.FirstSnapshot.ID}
	c.StateLookups = map[string]func(context.Context) (string, error){
		diff.Base: func(context.Context) (string, error) {
			if d.FirstSnapshot.ID == "" {
				return "", &fault.NotFoundError{Kind: "snapshot", Query: diff.Base}
			}
			return d.FirstSnapshot.ID, nil
		},
		diff.Work: func(ctx context.Context) (string, error) { return c.CaptureWork(ctx, d.subject("")) },
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	difference, err := c.Diff(ctx, req)
	if err == nil && works {
		difference.LeftOut = append(difference.LeftOut, d.reservedPaths()...)
	}
	return difference, err
}
