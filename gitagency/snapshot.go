package gitagency

import (
	"context"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
)

// Snapshot is the state of a sandbox at one moment, as an immutable commit. Its tree is the content on disk; its
// first parent is the previous snapshot, or the commit that the sandbox started from. Its message records HEAD and
// the index, and further parents keep their objects where needed.
type Snapshot struct {
	Invocation string `json:"invocation_id"`
	ID         string `json:"snapshot"` // full commit id
	Ref        string `json:"ref"`      // ref that keeps it
	Number     int    `json:"number"`   // number within the sandbox, from 1
	Created    bool   `json:"created"`  // false: an existing snapshot, unchanged since it was taken

	LeftOut []LeftOut `json:"left_out"` // paths in the sandbox that are neither ignored nor in the snapshot; only after taking one
}

func newSnapshot(s snapshots.Snapshot) Snapshot {
	return Snapshot{
		Invocation: s.Invocation, ID: s.ID, Ref: s.Ref, Number: s.Number, Created: s.Created,
		LeftOut: convertAll(s.LeftOut, newLeftOut),
	}
}

// LeftOut is a path in a sandbox that a snapshot does not hold.
type LeftOut struct {
	Path   string `json:"path"` // relative to the top of the sandbox
	Reason string `json:"why"`  // one of the LeftOut constants
}

// Reasons why a path is left out.
const (
	LeftOutSecret     = "secret"     // untracked file that looks like a credential
	LeftOutRepository = "repository" // nested repository, which a commit cannot hold
	LeftOutSubmodule  = "submodule"  // checkout of a submodule; the snapshot holds only its staged commit id
	LeftOutLeft       = "left"       // uncommitted file that a landing leaves in the trash; only in a LandResult
	LeftOutReserved   = "reserved"   // has the reserved name of the marker directory; only in a Directory
)

func newLeftOut(l snapshots.LeftOut) LeftOut { return LeftOut(l) }

// SnapshotRequest holds the options of a snapshot. The zero value is the default.
type SnapshotRequest struct {
	Message        string // commit message
	IncludeIgnored bool   // include ignored files
	IncludeSecrets bool   // include untracked files that look like credentials
}

// Snapshot takes a snapshot of the sandbox and returns its commit. If nothing has changed since the last snapshot, it
// returns that one.
func (s *Sandbox) Snapshot(ctx context.Context) (string, error) {
	return edge(s.sandbox.Snapshot(ctx))
}

// TakeSnapshot is Snapshot with options and a detailed result. The snapshot holds everything in the sandbox that is
// not ignored: tracked and untracked files, the index, and all commits reachable from HEAD or the branch. Untracked
// files that look like credentials, and nested repositories, which a commit cannot hold, are left out and listed.
// TakeSnapshot changes neither files, index, HEAD nor branch, and commands may run meanwhile: the snapshot is a
// consistent state of the sandbox, or the call fails with reason.Changing.
func (s *Sandbox) TakeSnapshot(ctx context.Context, req SnapshotRequest) (Snapshot, error) {
	taken, err := s.sandbox.TakeSnapshot(ctx, snapshots.TakeRequest(req))
	return newSnapshot(taken), publicError(err)
}

// SnapshotInfo is a snapshot with its metadata.
type SnapshotInfo struct {
	Invocation string    `json:"invocation_id"`
	ID         string    `json:"snapshot"` // full commit id
	Ref        string    `json:"ref"`
	Number     int       `json:"number"`
	Message    string    `json:"message"`
	TakenAt    time.Time `json:"taken_at"`
	Tool       string    `json:"tool_version"` // version of git-agency that took it; empty when unknown
	Parent     string    `json:"parent"`       // previous snapshot, else the commit that its sandbox started from
	Tree       string    `json:"tree"`         // tree of the content on disk
	Base       string    `json:"base"`         // commit that its sandbox started from
	Head       string    `json:"head"`         // commit at HEAD
	Index      string    `json:"index"`        // tree of the index; empty when none could be written, as during a merge

	// Difference from its parent, as "git diff --shortstat" counts.
	Files      int  `json:"files"`
	Insertions int  `json:"insertions"`
	Deletions  int  `json:"deletions"`
	Counted    bool `json:"counted"` // false: unknown, and the numbers are 0
}

func newSnapshotInfo(s snapshots.Info) SnapshotInfo { return SnapshotInfo(s) }

// Name returns the name for users, "<invocation>/<number>".
func (s SnapshotInfo) Name() string { return snapshots.Info(s).Name() }

// Subject returns the first line of the message.
func (s SnapshotInfo) Subject() string { return snapshots.Info(s).Subject() }

// SnapshotsRequest selects the snapshots to list.
type SnapshotsRequest struct {
	Invocation string // id or unique prefix of an invocation, which may have ended; empty: all
	SkipCounts bool   // do not count differences from the parent, which takes the longest
}

// Snapshots lists snapshots by invocation and number, the newest last. The number of git processes does not depend on
// the number of snapshots.
func (r *Repository) Snapshots(ctx context.Context, req SnapshotsRequest) ([]SnapshotInfo, error) {
	all, err := snapshots.Describe(ctx, r.statesRepository(), snapshots.DescribeRequest(req))
	return convertAll(all, newSnapshotInfo), publicError(err)
}

// RollbackRequest selects the state that a sandbox returns to.
type RollbackRequest struct {
	Snapshot string // required: commit, in full or as a unique prefix, or "<invocation>/<number>"
}

// RollbackResult reports a rollback.
type RollbackResult struct {
	Invocation   string `json:"invocation_id"`
	Snapshot     string `json:"snapshot"`  // commit of the snapshot that the sandbox is now at
	Name         string `json:"name"`      // name of that snapshot: <invocation>/<number>
	Left         string `json:"left"`      // commit of the snapshot taken before the rollback
	LeftName     string `json:"left_name"` // name of that snapshot; a rollback to it undoes this one
	Already      bool   `json:"already"`   // the sandbox was in that state; nothing has changed
	Added        int    `json:"added"`     // number of files
	Changed      int    `json:"changed"`
	Removed      int    `json:"removed"`
	DetachedFrom string `json:"strayed"` // branch that HEAD was on and that has moved since; HEAD is detached then
}

// Rollback returns the sandbox to a snapshot: files, index, HEAD and the branch of the sandbox, and a merge or rebase
// that was in progress. Files created later are removed. Files that no snapshot holds stay: ignored files, nested
// repositories, left-out files. The current state is snapshotted first, including files that are in the way of the
// target, so that another rollback can undo this one.
//
// Rollback does not end commands: if some run in the sandbox, it fails with reason.Running; if another git writes in
// it, with reason.GitLocked. Until the first change a failure or cancellation is undone; after it the rollback is
// finished, by this call or by the next command that works in the sandbox; the reason is
// reason.UnfinishedTransition then.
func (s *Sandbox) Rollback(ctx context.Context, req RollbackRequest) (RollbackResult, error) {
	result, err := s.sandbox.Rollback(ctx, sandbox.RollbackRequest(req))
	return RollbackResult(result), publicError(err)
}

// CheckoutRequest selects a snapshot and the directory to copy it to.
type CheckoutRequest struct {
	Snapshot string // required: commit, in full or as a unique prefix, or "<invocation>/<number>"
	Dir      string // required: a directory that is empty or does not exist; its parent exists
}

// CheckoutResult reports a copy of a snapshot.
type CheckoutResult struct {
	Invocation string `json:"invocation_id"`
	ID         string `json:"snapshot"`
	Ref        string `json:"ref"`
	Number     int    `json:"number"`
	Path       string `json:"path"` // absolute, symbolic links resolved
}

// CheckoutSnapshot creates a directory with the files of a snapshot and nothing else, or fails and leaves nothing.
// The directory belongs to no repository. It must not overlap an integration tree, a sandbox, a git directory or the
// data directory, by any spelling.
func (r *Repository) CheckoutSnapshot(ctx context.Context, req CheckoutRequest) (CheckoutResult, error) {
	result, err := snapshots.Checkout(ctx, r.statesRepository(), snapshots.CheckoutRequest(req))
	return CheckoutResult(result), publicError(err)
}

// VerifySnapshotRequest selects the snapshot to verify.
type VerifySnapshotRequest struct {
	Snapshot string            // required: commit, in full or as a unique prefix, or "<invocation>/<number>"
	Progress func(objects int) // called now and then with the number of hashed objects; may be nil
}

// VerifySnapshotResult reports the verification of a snapshot.
type VerifySnapshotResult struct {
	Invocation     string          `json:"invocation_id"`
	ID             string          `json:"snapshot"`
	Ref            string          `json:"ref"`
	Number         int             `json:"number"`
	Intact         bool            `json:"sound"`
	Objects        int             `json:"objects"` // number of objects whose content matches their id
	Bytes          int64           `json:"bytes"`   // total size of their contents
	Damage         []DamagedObject `json:"damage"`
	ShallowCommits []string        `json:"cut_off"`  // commits of a shallow repository whose parents are missing
	Promised       int             `json:"promised"` // number of objects that only a remote has (partial clone)
	StoppedEarly   bool            `json:"stopped"`  // too much damage was found; the rest was not checked
}

func newVerifySnapshotResult(v snapshots.VerifyResult) VerifySnapshotResult {
	return VerifySnapshotResult{
		Invocation: v.Invocation, ID: v.ID, Ref: v.Ref, Number: v.Number, Intact: v.Intact, Objects: v.Objects, Bytes: v.Bytes,
		Damage: convertAll(v.Damage, newDamagedObject), ShallowCommits: v.ShallowCommits, Promised: v.Promised, StoppedEarly: v.StoppedEarly,
	}
}

// Err returns a *DamagedError if the snapshot is damaged, else nil.
func (v VerifySnapshotResult) Err() error {
	if v.Intact {
		return nil
	}
	name := SnapshotInfo{Invocation: v.Invocation, Number: v.Number}.Name()
	return &DamagedError{Snapshot: name, Commit: v.ID, Objects: len(v.Damage), StoppedEarly: v.StoppedEarly}
}

// DamagedObject is an object that is missing or does not match its id.
type DamagedObject struct {
	ID      string `json:"object"`
	Kind    string `json:"kind"`    // expected type: commit, tree or blob
	Path    string `json:"path"`    // one path of it in some tree; empty for a commit and its root tree
	Problem string `json:"problem"` // missing, unreadable, altered or misplaced
	Detail  string `json:"detail"`
}

func newDamagedObject(o snapshots.DamagedObject) DamagedObject { return DamagedObject(o) }

// VerifySnapshot hashes every object that is reachable from a snapshot in this process, its commit, trees, files and
// whole history, and reports those that do not match their ids. Damage is not an error here; see Err of the result.
func (r *Repository) VerifySnapshot(ctx context.Context, req VerifySnapshotRequest) (VerifySnapshotResult, error) {
	result, err := snapshots.Verify(ctx, r.core, snapshots.VerifyRequest(req))
	return newVerifySnapshotResult(result), publicError(err)
}
