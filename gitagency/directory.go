package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/directory"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
)

// Directory is a plain directory, outside every repository, that has snapshots. They are stored in a bare repository in the
// data directory; the directory itself is only read. All of its files are untracked, so each snapshot decides anew which
// files are ignored and which look like credentials.
//
// A Directory has no rollback. The rollback of a Sandbox relies on the tree being ours to change; a directory belongs to
// the user, who can check out a snapshot and put it in place.
type Directory struct {
	ID            string   // first 16 hex digits of the SHA-256 of Path; its snapshots are named <id>/<n>
	Path          string   // canonical path
	FirstSnapshot Snapshot // snapshot taken by Onboard; Created is set only by the call that took it

	directory *directory.Directory
}

func newDirectory(d *directory.Directory) *Directory {
	return &Directory{ID: d.ID, Path: d.Path, FirstSnapshot: newSnapshot(d.FirstSnapshot), directory: d}
}

// OnboardRequest says which directory to onboard.
type OnboardRequest struct {
	Dir           string          // required: absolute path, or relative to Options.Dir; symlinks are followed
	FirstSnapshot SnapshotRequest // options of its first snapshot
}

func (req OnboardRequest) internal() directory.OnboardRequest {
	return directory.OnboardRequest{Dir: req.Dir, FirstSnapshot: snapshots.TakeRequest(req.FirstSnapshot)}
}

// Onboard creates a bare repository for a plain directory in the data directory and takes the first snapshot, all or
// nothing. A directory that is onboarded already is opened, without a new snapshot. Options.Dir only serves to resolve a
// relative path.
//
// Onboard never writes to the directory. The directory must not be in a repository or be one (reason.InRepository): use
// sandboxes for snapshots there. Nor may it overlap the data directory, an integration tree or a sandbox, by any spelling
// (reason.Overlap).
func Onboard(ctx context.Context, req OnboardRequest, opts Options) (*Directory, error) {
	d, err := directory.Onboard(ctx, req.internal(), opts.internal())
	if err != nil {
		return nil, publicError(err)
	}
	return newDirectory(d), nil
}

// OpenDirectory opens an onboarded directory by any path that leads to it. The directory itself may be gone; its snapshots
// remain. A directory without a record is a *NotFoundError.
func OpenDirectory(ctx context.Context, dir string, opts Options) (*Directory, error) {
	d, err := directory.Open(ctx, dir, opts.internal())
	if err != nil {
		return nil, publicError(err)
	}
	return newDirectory(d), nil
}

// Directories lists the onboarded directories, sorted by path.
func Directories(ctx context.Context, opts Options) ([]*Directory, error) {
	all, err := directory.List(ctx, opts.internal())
	return convertAll(all, newDirectory), publicError(err)
}

// Snapshot takes a snapshot of the directory, as TakeSnapshot does for a sandbox: all files that are not ignored, except
// those listed in LeftOut. If nothing has changed since the last snapshot, it returns that one. The directory's .gitignore
// and .gitattributes files and the user's git configuration apply as in git.
func (d *Directory) Snapshot(ctx context.Context, req SnapshotRequest) (Snapshot, error) {
	s, err := d.directory.Snapshot(ctx, snapshots.TakeRequest(req))
	return newSnapshot(s), publicError(err)
}

// Snapshots lists the snapshots of the directory, the newest last.
func (d *Directory) Snapshots(ctx context.Context) ([]SnapshotInfo, error) {
	all, err := d.directory.Snapshots(ctx)
	return convertAll(all, newSnapshotInfo), publicError(err)
}

// VerifySnapshot rehashes every object of a snapshot, as Repository.VerifySnapshot does.
func (d *Directory) VerifySnapshot(ctx context.Context, req VerifySnapshotRequest) (VerifySnapshotResult, error) {
	result, err := d.directory.VerifySnapshot(ctx, snapshots.VerifyRequest(req))
	return newVerifySnapshotResult(result), publicError(err)
}

// CheckoutSnapshot creates a directory with exactly the files of a snapshot, as Repository.CheckoutSnapshot does. It must
// not overlap the directory that the snapshot is of.
func (d *Directory) CheckoutSnapshot(ctx context.Context, req CheckoutRequest) (CheckoutResult, error) {
	result, err := d.directory.CheckoutSnapshot(ctx, snapshots.CheckoutRequest(req))
	return CheckoutResult(result), publicError(err)
}

// DiffSnapshots compares two states of the directory, as Repository.DiffSnapshots does for a sandbox: any two snapshots,
// DiffBase, which is the first snapshot, and DiffWork, the current files. DiffRequest.Invocation must be empty.
func (d *Directory) DiffSnapshots(ctx context.Context, req DiffRequest) (Diff, error) {
	diff, err := d.directory.DiffSnapshots(ctx, req.internal())
	return newDiff(diff), publicError(err)
}

// Forget removes the snapshots and the record of a directory from the data directory. The directory itself stays
// unchanged. Repeating it is allowed.
func (d *Directory) Forget(ctx context.Context) error {
	return publicError(d.directory.Forget(ctx))
}
