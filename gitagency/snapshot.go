package gitagency

import (
	"context"

	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
)

// RollbackRequest selects the state that a sandbox returns to.
type RollbackRequest = sandbox.RollbackRequest

// RollbackResult reports a rollback.
type RollbackResult = sandbox.RollbackResult

// Rollback returns the sandbox to a snapshot: files, index, HEAD and the branch of the sandbox, and a merge or rebase
// that was in progress. Files created later are removed. Files that no snapshot holds stay: ignored files, nested
// repositories, left-out files. The current state is snapshotted first, including files that are in the way of the
// target, so that another rollback can undo this one.
//
// Rollback does not end commands: if some run in the sandbox, the error is a *RunningError; if another git writes in
// it, a *GitLockedError. Until the first change a failure or cancellation is undone; after it the rollback is
// finished, by this call or by the next command that works in the sandbox; the error is a *UnfinishedTransitionError then.
func (s *Sandbox) Rollback(ctx context.Context, req RollbackRequest) (RollbackResult, error) {
	return s.sandbox.Rollback(ctx, req)
}

// Snapshot is the state of a sandbox at one moment, as an immutable commit. Its tree is the content on disk; its
// first parent is the previous snapshot, or the commit that the sandbox started from. Its message records HEAD and
// the index, and further parents keep their objects where needed.
type Snapshot = sandbox.Snapshot

// LeftOut is a path in a sandbox that a snapshot does not hold.
type LeftOut = sandbox.LeftOut

// Reasons why a path is left out.
const (
	LeftOutSecret     = sandbox.LeftOutSecret     // untracked file that looks like a credential
	LeftOutRepository = sandbox.LeftOutRepository // nested repository, which a commit cannot hold
	LeftOutSubmodule  = sandbox.LeftOutSubmodule  // checkout of a submodule; the snapshot holds only its staged commit id
	LeftOutReserved   = sandbox.LeftOutReserved   // has the reserved name of the marker directory; only in a Directory
)

// CheckoutRequest selects a snapshot and the directory to copy it to.
type CheckoutRequest = sandbox.CheckoutRequest

// CheckoutResult reports a copy of a snapshot.
type CheckoutResult = sandbox.CheckoutResult

// CheckoutSnapshot creates a directory with the files of a snapshot and nothing else, or fails and leaves nothing.
// The directory belongs to no repository. It must not overlap an integration tree, a sandbox, a git directory or the
// data directory, by any spelling.
func (r *Repository) CheckoutSnapshot(ctx context.Context, req CheckoutRequest) (CheckoutResult, error) {
	return sandbox.CheckoutSnapshot(ctx, r.core, req)
}

// SnapshotInfo is a snapshot with its metadata.
type SnapshotInfo = sandbox.SnapshotInfo

// SnapshotsRequest selects the snapshots to list.
type SnapshotsRequest = sandbox.SnapshotsRequest

// Snapshots lists snapshots by invocation and number, the newest last. The number of git processes does not depend on
// the number of snapshots.
func (r *Repository) Snapshots(ctx context.Context, req SnapshotsRequest) ([]SnapshotInfo, error) {
	return sandbox.Snapshots(ctx, r.core, req)
}

// SnapshotRequest holds the options of a snapshot. The zero value is the default.
type SnapshotRequest = sandbox.SnapshotRequest

// Snapshot takes a snapshot of the sandbox and returns its commit. If nothing has changed since the last snapshot, it
// returns that one.
func (s *Sandbox) Snapshot(ctx context.Context) (string, error) {
	return s.sandbox.Snapshot(ctx)
}

// TakeSnapshot is Snapshot with options and a detailed result. The snapshot holds everything in the sandbox that is
// not ignored: tracked and untracked files, the index, and all commits reachable from HEAD or the branch. Untracked
// files that look like credentials, and nested repositories, which a commit cannot hold, are left out and listed.
// TakeSnapshot changes neither files, index, HEAD nor branch, and commands may run meanwhile: the snapshot is a
// consistent state of the sandbox, or the error is an *StillChangingError.
func (s *Sandbox) TakeSnapshot(ctx context.Context, req SnapshotRequest) (_ Snapshot, err error) {
	return s.sandbox.TakeSnapshot(ctx, req)
}

// VerifySnapshotRequest selects the snapshot to verify.
type VerifySnapshotRequest = sandbox.VerifySnapshotRequest

// VerifySnapshotResult reports the verification of a snapshot.
type VerifySnapshotResult = sandbox.VerifySnapshotResult

// DamagedObject is an object that is missing or does not match its id.
type DamagedObject = sandbox.DamagedObject

// VerifySnapshot hashes every object that is reachable from a snapshot in this process, its commit, trees, files and
// whole history, and reports those that do not match their ids. Damage is not an error here; see Err of the result.
func (r *Repository) VerifySnapshot(ctx context.Context, req VerifySnapshotRequest) (VerifySnapshotResult, error) {
	return sandbox.VerifySnapshot(ctx, r.core, req)
}
