package gitagency

import (
	"github.com/git-agency/git-agency/gitagency/internal/doctor"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/landing"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// NoRepositoryError: git finds no repository here, or refuses to use it.
type NoRepositoryError = fault.NoRepositoryError

// GitTooOldError: git is older than the minimum version.
type GitTooOldError = fault.GitTooOldError

// LockTimeoutError: the repository lock was not free in time.
type LockTimeoutError = fault.LockTimeoutError

// NotFoundError: no worktree, invocation or snapshot has this name or id.
type NotFoundError = fault.NotFoundError

// CorruptRecordError: a record cannot be parsed.
type CorruptRecordError = fault.CorruptRecordError

// AmbiguousError: several ids begin with the prefix.
type AmbiguousError = fault.AmbiguousError

// NestedRepositoryError: a tree contains repositories, which no commit can hold and which would be lost with it.
type NestedRepositoryError = fault.NestedRepositoryError

// InTheWayError: something that no snapshot can hold is where a rollback has to write a file.
type InTheWayError = fault.InTheWayError

// GitLockedError: another git is writing in a sandbox, or has left its lock file there.
type GitLockedError = fault.GitLockedError

// UnreadableError: a file in a sandbox cannot be read, so no snapshot could hold it.
type UnreadableError = fault.UnreadableError

// IncompleteError: an object is missing or has the wrong type.
type IncompleteError = fault.IncompleteError

// StillChangingError: files in a sandbox keep changing, so no consistent state can be read.
type StillChangingError = fault.StillChangingError

// UntrustedFilterError: a file cannot be read or written without running a filter that an agent may have
// configured.
type UntrustedFilterError = fault.UntrustedFilterError

// CannotRunError: a command does not exist or cannot be executed.
type CannotRunError = fault.CannotRunError

// OutputError: the output of a command could not be passed on.
type OutputError = fault.OutputError

// UnenforceableError: this machine cannot enforce a limit.
type UnenforceableError = fault.UnenforceableError

// InvalidTreeError: a tree object of a sandbox has an entry that git would not accept.
type InvalidTreeError = fault.InvalidTreeError

// InvalidCommitError: a commit object of a sandbox is malformed; git would not have written it.
type InvalidCommitError = fault.InvalidCommitError

// LocalChangesError: local changes of the user are in the paths that a landing would write.
type LocalChangesError = fault.LocalChangesError

// WorktreeBusyError: a merge, rebase or other git operation is in progress in the worktree that has the
// integration branch checked out.
type WorktreeBusyError = fault.WorktreeBusyError

// UnrelatedError: a sandbox has no common history with its integration branch.
type UnrelatedError = fault.UnrelatedError

// NoIdentityError: git has no name and email for the author of a commit.
type NoIdentityError = fault.NoIdentityError

// DateError: a date variable, such as GIT_AUTHOR_DATE, has a value that git cannot parse.
type DateError = fault.DateError

// MissingHeadError: HEAD of a sandbox leads to a missing commit.
type MissingHeadError = fault.MissingHeadError

// ConfinementError: a path leads out of a sandbox, or has a reserved name.
type ConfinementError = fault.ConfinementError

// ErrQuarantine refuses to change a repository from a hook that receives a push: git forbids ref updates there, and
// the received objects may still be dropped.
var ErrQuarantine = fault.ErrQuarantine

var (
	// ErrStopped reports a command that was ended from outside, for example by a discard of its sandbox.
	ErrStopped = fault.ErrStopped
	// ErrSupervisorKilled reports a command whose processes may still run, because its supervisor was killed.
	ErrSupervisorKilled = fault.ErrSupervisorKilled
	// ErrBackground reports a terminal that cannot be read, because this process is not in its foreground process
	// group.
	ErrBackground = fault.ErrBackground
)

// InvalidError reports a value that is malformed, whatever the state of the repository.
type InvalidError = fault.InvalidError

// SettingError reports a setting in git config that is ignored or invalid.
type SettingError = settings.SettingError

// UnsupportedError reports a value of a primitive that exists but cannot be built here.
type UnsupportedError = fault.UnsupportedError

// UnsafePathError reports a path that leads elsewhere, or that cannot be resolved or used safely.
type UnsafePathError = fault.UnsafePathError

// NoFreeIDError reports that every generated id was taken.
type NoFreeIDError = fault.NoFreeIDError

// BrokenError reports an invocation or worktree whose record and tree disagree.
type BrokenError = fault.BrokenError

// DamagedError reports a snapshot with missing or corrupt objects.
type DamagedError = fault.DamagedError

// FindingError reports a problem that only a person can repair.
type FindingError = doctor.FindingError

// CorruptEntryError reports a corrupt entry in .git/worktrees, which keeps git from working with any worktree.
type CorruptEntryError = fault.CorruptEntryError

// CleanupError reports a clean-up that did not finish after the commit point. The invocation or worktree has ended;
// running the same command again continues the clean-up.
type CleanupError = fault.CleanupError

// ForeignFileError reports a file, directory or link at a path to install at that is not ours to overwrite.
type ForeignFileError = fault.ForeignFileError

// Conflict is a path that could not be merged automatically.
type Conflict = fault.Conflict

// ConflictStage is one side of a conflict: 1 is the merge base, 2 ours (the sandbox's in a sync), 3 theirs.
type ConflictStage = fault.ConflictStage

// ConflictsError reports conflicts between a sandbox and its integration branch. Nothing has changed, unless
// UnfinishedIn names the sandbox that holds the unfinished merge.
type ConflictsError = fault.ConflictsError

// UncommittedError reports a sandbox with uncommitted changes.
type UncommittedError = sandbox.UncommittedError

// NothingToLandError reports a sandbox without work to land.
type NothingToLandError = landing.NothingToLandError

// NotSubmittedError reports work that must not land before it was submitted for review, because agency.requireReview
// is set.
type NotSubmittedError = fault.NotSubmittedError

// NotInReviewError reports an invocation that cannot be rejected, because it is not in review.
type NotInReviewError = fault.NotInReviewError

// BaseMovedError reports an integration branch with commits that the sandbox to land does not contain.
type BaseMovedError = fault.BaseMovedError

// HeadLacksBranchError reports a sandbox whose HEAD is not on its own branch, and lacks commits of that branch.
type HeadLacksBranchError = fault.HeadLacksBranchError

// NoBranchError reports an integration worktree with a detached HEAD, so that there is no branch to land on.
type NoBranchError = fault.NoBranchError

// UnnamedGitlinkError reports a nested repository in a sandbox that was added as a gitlink without an entry in
// .gitmodules.
type UnnamedGitlinkError = fault.UnnamedGitlinkError

// InvalidObjectError reports a sandbox with malformed commits or trees, which must not land. Err is an *InvalidTreeError or
// *InvalidCommitError.
type InvalidObjectError = fault.InvalidObjectError

// SandboxOperationError reports a git operation that is in progress in a sandbox.
type SandboxOperationError = fault.SandboxOperationError

// StuckLandingError reports an interrupted landing that can neither be finished nor undone, because its branch,
// worktree or sandbox has changed since.
type StuckLandingError = fault.StuckLandingError

// NoLongerLandedError reports work that has landed and is no longer on the integration branch.
type NoLongerLandedError = fault.NoLongerLandedError

// NotLandedError reports an invocation without a landing to take back.
type NotLandedError = fault.NotLandedError

// VerifyError reports a landing whose verify command failed or could not be run.
type VerifyError = landing.VerifyError

// KeepsMovingError reports an integration branch or sandbox that moved during every attempt to land.
type KeepsMovingError = fault.KeepsMovingError

// TemporarySandboxError reports a temporary sandbox, which exists only to verify a landing and cannot land itself.
type TemporarySandboxError = fault.TemporarySandboxError

// NoRemoteError reports that there is no remote to push to. Nothing has changed.
type NoRemoteError = fault.NoRemoteError

// UpstreamError reports a branch whose upstream has another name; as in git, it is unclear which branch to push to.
// Nothing has changed.
type UpstreamError = fault.UpstreamError

// UntrustedRemoteError reports a remote on this machine whose hooks a push would run, while a sandbox without walls
// could have configured its URL. Nothing has changed.
type UntrustedRemoteError = fault.UntrustedRemoteError

// NotPushedError reports an integration branch that could not be pushed. Earlier landings on it stand.
type NotPushedError = landing.NotPushedError

// RejectedError reports a push that the remote rejected, for another reason than that it was no fast-forward.
type RejectedError = fault.RejectedError

// PushRaceError reports a remote that received other pushes before every one of our attempts.
type PushRaceError = fault.PushRaceError

// SetupError reports a command that never ran, because its environment could not be set up.
type SetupError = fault.SetupError

// BusyError reports a sandbox in which processes are still at work.
type BusyError = fault.BusyError

// RunningError reports a sandbox in which commands run, so that its state cannot be rolled back.
type RunningError = fault.RunningError

// UnfinishedTransitionError reports a rollback or sync that could not be finished. The sandbox is neither in its old state, which
// the snapshot LeftSnapshot keeps, nor in the new one; the next command that works in it finishes the transition.
type UnfinishedTransitionError = fault.UnfinishedTransitionError

// LostRollbackError reports an interrupted rollback or sync that can no longer be finished.
type LostRollbackError = fault.LostRollbackError

// InsideError refuses to end a sandbox with running commands from a command inside a sandbox: processes elsewhere
// cannot be seen from there.
type InsideError = fault.InsideError

// BehindWallsError refuses a call from behind the walls of a sandbox, where records are not visible.
type BehindWallsError = fault.BehindWallsError

// NothingRunsError reports a sandbox without running commands, so that there is no port to reach.
type NothingRunsError = fault.NothingRunsError

// SharedNetworkError reports a sandbox that shares the network of this machine.
type SharedNetworkError = fault.SharedNetworkError

// PortTakenError reports a port of this machine that is in use, or that is reserved for root.
type PortTakenError = sandbox.PortTakenError

// EndedError reports an invocation whose sandbox is gone because it was landed or discarded.
type EndedError = fault.EndedError

// MovedError reports a sandbox tree that "git worktree move" has moved.
type MovedError = fault.MovedError

// LiveSandboxesError reports a worktree that still has live sandboxes.
type LiveSandboxesError = fault.LiveSandboxesError

// OperationTimeoutError reports an operation in a sandbox that exceeded its timeout and was undone.
type OperationTimeoutError = fault.OperationTimeoutError

// TooLargeError reports a result that is too large to hold in memory.
type TooLargeError = fault.TooLargeError

// NotIntegrationError reports a tree without the integration marker.
type NotIntegrationError = fault.NotIntegrationError

// NotSandboxError reports a tree in which nothing may run: it lacks the sandbox marker, or has the integration
// marker.
type NotSandboxError = fault.NotSandboxError

// OverlapError reports a tree that would equal, contain or lie inside another one.
type OverlapError = fault.OverlapError

// InRepositoryError refuses a directory that belongs to a repository, and so needs none of its own.
type InRepositoryError = fault.InRepositoryError

// NotEmptyError reports a target directory that is not empty.
type NotEmptyError = fault.NotEmptyError

// TrackedMarkerError reports a commit that contains .agency, or whose checkout has written it.
type TrackedMarkerError = fault.TrackedMarkerError

// SandboxError reports a sandbox where an integration worktree is required.
type SandboxError = fault.SandboxError

// NotWorktreeError reports a path that is in no worktree of the repository.
type NotWorktreeError = fault.NotWorktreeError

// NameTakenError reports a name that a present worktree has already.
type NameTakenError = fault.NameTakenError

// AdoptedError reports a tree that is an integration worktree already.
type AdoptedError = fault.AdoptedError

// NoCommitError reports a revision that does not lead to a commit.
type NoCommitError = fault.NoCommitError

// BranchInTheWayError reports a branch called "agency", which keeps git from creating branches agency/….
type BranchInTheWayError = fault.BranchInTheWayError

// ArchivedError reports a worktree that was archived.
type ArchivedError = fault.ArchivedError

// DirtyError reports a tree with uncommitted or untracked files.
type DirtyError = fault.DirtyError

// ModifiedTreeError reports a tree that was changed although its creation never finished.
type ModifiedTreeError = fault.ModifiedTreeError

// OffBranchError reports a sandbox whose HEAD is not on its own branch.
type OffBranchError = fault.OffBranchError

// UntrackedInTheWayError reports untracked files in a sandbox in the paths that a merge would write.
type UntrackedInTheWayError = fault.UntrackedInTheWayError
