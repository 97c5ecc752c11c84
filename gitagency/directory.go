package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/directory"
)

// Directory is a plain directory, outside every repository, that has snapshots. They are stored in a bare repository in the
// data directory; the directory itself is only read. All of its files are untracked, so each snapshot decides anew which
// files are ignored and which look like credentials.
//
// A Directory has no rollback. The rollback of a Sandbox relies on the tree being ours to change; a directory belongs to
// the user, who can check out a snapshot and put it in place.
type Directory = directory.Directory

// OpenDirectory opens an onboarded directory by any path that leads to it. The directory itself may be gone; its snapshots
// remain. A directory without a record is a *NotFoundError.
func OpenDirectory(ctx context.Context, dir string, opts Options) (*Directory, error) {
	return directory.OpenDirectory(ctx, dir, opts)
}

// Directories lists the onboarded directories, sorted by path.
func Directories(ctx context.Context, opts Options) ([]*Directory, error) {
	return directory.Directories(ctx, opts)
}

// OnboardRequest says which directory to onboard.
type OnboardRequest = directory.OnboardRequest

// Onboard creates a bare repository for a plain directory in the data directory and takes the first snapshot, all or
// nothing. A directory that is onboarded already is opened, without a new snapshot. Options.Dir only serves to resolve a
// relative path.
//
// Onboard never writes to the directory. The directory must not be in a repository or be one (*InRepositoryError): use
// sandboxes for snapshots there. Nor may it overlap the data directory, an integration tree or a sandbox, by any spelling
// (*OverlapError).
func Onboard(ctx context.Context, req OnboardRequest, opts Options) (*Directory, error) {
	return directory.Onboard(ctx, req, opts)
}
