package gitagency

import (
	"errors"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/doctor"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/landing"
	"github.com/git-agency/git-agency/gitagency/internal/preflight"
	"github.com/git-agency/git-agency/gitagency/internal/runs"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/reason"
)

// edge passes the error of a call to a package below through publicError.
func edge[T any](value T, err error) (T, error) { return value, publicError(err) }

// publicError returns an error of the packages below as callers of this package see it: with the same message and the same
// causes, and with a value of an error type of this package for every error of theirs that it wraps. Every exported
// function and method that calls the packages below passes its error through it.
func publicError(err error) error {
	if err == nil {
		return nil
	}
	if views := publicViews(err, "", nil); len(views) > 0 {
		return &edgeError{err, views}
	}
	return err
}

// edgeError is an error of the packages below with its public views, the outermost first.
type edgeError struct {
	err   error
	views []error
}

func (e *edgeError) Error() string { return e.err.Error() }

func (e *edgeError) Unwrap() []error { return append(e.views[:len(e.views):len(e.views)], e.err) }

// publicViews appends the public views of an error and of all that it wraps. id is the invocation that an error around it
// is about.
func publicViews(err error, id string, views []error) []error {
	if _, done := err.(*edgeError); done {
		return views
	}
	if of, ok := err.(*fault.InvocationError); ok {
		id = of.ID
	}
	view := stateView(err)
	if limit, ok := view.(*StateError); ok && limit.Reason == reason.ReadLimit && limit.ID == "" {
		limit.ID = id
	}
	if view == nil {
		view = refusedView(err)
	}
	if view == nil {
		view = dataView(err)
	}
	if view != nil {
		views = append(views, view)
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		if below := err.Unwrap(); below != nil {
			views = publicViews(below, id, views)
		}
	case interface{ Unwrap() []error }:
		for _, below := range err.Unwrap() {
			views = publicViews(below, id, views)
		}
	}
	return views
}

// dataView returns the public view of an error that has a public type of its own; nil for any other.
func dataView(err error) error {
	switch e := err.(type) {
	case *fault.InvalidError:
		return &InvalidError{What: e.What, Value: e.Value, Want: e.Want, Known: e.Known, ConfigKey: e.ConfigKey, Scope: e.Setting.Scope, Origin: e.Setting.Origin}
	case *fault.NotFoundError:
		return &NotFoundError{Kind: e.Kind, Query: e.Query, Named: e.Named, Archived: e.Archived, ArchivedBranch: e.ArchivedBranch}
	case *fault.AmbiguousError:
		return &AmbiguousError{Kind: e.Kind, Query: e.Query, Matches: e.Matches}
	case *fault.NoRepositoryError:
		return &NoRepositoryError{GitDir: e.GitDir, Err: err}
	case *fault.NoCurrentDirError:
		return &NoCurrentDirError{Err: err}
	case *fault.GitTooOldError:
		return &GitTooOldError{Version: e.Have.String(), Err: err}
	case *fault.RefStorageError:
		return &RefStorageError{Format: e.Format, Err: err}
	case *fault.LockTimeoutError:
		return &LockTimeoutError{Path: e.Path, Holder: e.Holder.String(), Waited: e.Waited, Err: err}
	case *fault.BusyError:
		return &BusyError{ID: e.ID, Waited: e.Waited, Holders: e.Holders, Err: err}
	case *fault.BrokenError:
		return (*BrokenError)(e)
	case *fault.MovedRepositoryError:
		return (*MovedRepositoryError)(e)
	case *fault.CorruptEntryError:
		return &CorruptEntryError{Path: e.Path, What: e.What}
	case *doctor.FindingError:
		return &FindingError{Code: e.Finding.Code, ID: e.Finding.ID, Problem: e.Finding.Problem, FixCommand: e.Finding.FixCommand}
	case *settings.SettingError:
		return &SettingError{Key: e.Setting.Key, Value: e.Setting.Value, Origin: e.Setting.Origin, Problem: e.Setting.Problem}
	case *preflight.FailedError:
		return &PreflightError{Checks: convertAll(e.Checks, newPreflightCheck), Err: err}
	case *fault.ConfinementError:
		return (*ConfinementError)(e)
	case *fault.CannotRunError:
		return &CannotRunError{Program: e.Program, Code: e.Code, Err: publicError(e.Err)}
	case *fault.SetupError:
		return &SetupError{ID: e.ID, Err: publicError(e.Err), Submitting: e.Submitting}
	case *fault.EndedError:
		return (*EndedError)(e)
	case *fault.NestedRepositoryError:
		return (*NestedRepositoryError)(e)
	case *fault.CleanupError:
		return &CleanupError{Kind: e.Kind, ID: e.ID, Done: e.Done, Err: publicError(e.Err)}
	}
	return landingView(err)
}

// refusedView returns the RefusedError for an error; nil for any other.
func refusedView(err error) error {
	v := RefusedError{Err: err}
	switch e := err.(type) {
	case *fault.NotIntegrationError:
		v.Reason, v.Path, v.Name = reason.NotIntegration, e.Path, e.Worktree
		if e.NoTree {
			v.Reason = reason.NoWorktree
		} else if e.Worktree != "" {
			v.Reason = reason.MarkerLost
		}
	case *fault.NotSandboxError:
		v.Reason, v.Path = reason.NotSandbox, e.Path
		if e.Integration {
			v.Reason = reason.MarkedIntegration
		}
	case *fault.IsSandboxError:
		v.Reason, v.Path = reason.IsSandbox, e.Path
	case *fault.OverlapError:
		v.Reason, v.Path, v.Other = reason.Overlap, e.Path, e.Other
	case *fault.UnsafePathError:
		v.Reason, v.Path = reason.UnsafePath, e.Path
	case *fault.TrackedMarkerError:
		v.Reason, v.Commit = reason.TrackedMarker, e.Commit
	case *fault.InvalidObjectError:
		v.Reason, v.ID, v.Commit, v.Path = reason.InvalidWork, e.ID, e.Base, e.Path
		v.Name, v.Other = e.Finished.Name, e.Finished.Tree
	case *fault.ImportError:
		if e.Tip == "" {
			return nil // importState
		}
		v.Reason, v.ID, v.Commit, v.Path = reason.InvalidWork, e.ID, e.Tip, e.Path
	case *fault.InvalidTreeError:
		v.Reason, v.Path = reason.InvalidObject, e.Path
	case *fault.InvalidCommitError:
		v.Reason, v.Commit = reason.InvalidObject, e.Commit
	case *fault.UntrustedFilterError:
		v.Reason, v.Path, v.Name, v.Other = reason.UntrustedFilter, e.Path, e.Filter, e.File
	case *fault.UntrustedRemoteError:
		v.Reason, v.Name, v.Other, v.Others = reason.UntrustedRemote, e.Remote, e.URL, e.Hooks
	default:
		return allowView(err)
	}
	return &v
}

// stateView returns the StateError for an error; nil for any other.
func stateView(err error) error {
	for _, view := range []func(error, *StateError){worktreeState, branchState, sandboxState, landingState, machineState} {
		v := StateError{Err: err}
		if view(err, &v); v.Reason != "" {
			return &v
		}
	}
	return nil
}

// worktreeState fills v if err is about integration worktrees and their branches.
func worktreeState(err error, v *StateError) {
	switch e := err.(type) {
	case *fault.OtherModulesError:
		v.Reason, v.ID, v.Others = reason.OtherModules, e.ID, e.Names
	case *fault.NoParentError:
		v.Reason, v.Name, v.Path, v.Branch = reason.NoParent, e.Name, e.Path, e.Branch
	case *fault.NotInSandboxError:
		v.Reason, v.Path = reason.NotInSandbox, e.Path
	case *fault.NotInsideError:
		v.Reason = reason.NotInside
	case *fault.SandboxBranchError:
		v.Reason, v.Path, v.Branch = reason.SandboxBranch, e.Path, e.Branch
	case *fault.NotWorktreeError:
		v.Reason, v.Path, v.Other = reason.NotWorktree, e.Path, e.Unlinked
	case *fault.NameTakenError:
		v.Reason, v.Name, v.ID = reason.NameTaken, e.Name, e.ID
	case *fault.AdoptedError:
		v.Reason, v.Path, v.Name = reason.Adopted, e.Path, e.Name
	case *fault.ArchivedError:
		v.Reason, v.ID, v.Name, v.Branch, v.Other = reason.Archived, e.ID, e.Name, e.Branch, e.Invocation
		if e.Successor != "" {
			v.Others = []string{e.Successor}
		}
	case *fault.DirtyError:
		v.Reason, v.Path, v.Other = reason.Dirty, e.Path, finishing(e.Finishing)
	case *fault.ModifiedTreeError:
		v.Reason, v.Path = reason.ModifiedTree, e.Path
	case *fault.LiveSandboxesError:
		v.Reason, v.Name, v.Others, v.Other = reason.LiveSandboxes, e.Name, e.Invocations, finishing(e.Finishing)
	case *fault.NoBranchError:
		v.Reason, v.Name, v.Path = reason.NoBranch, e.Worktree, e.Path
	case *fault.WorktreeBusyError:
		v.Reason, v.Path, v.Operation = reason.WorktreeBusy, e.Worktree, e.Operation
	case *fault.NotEmptyError:
		v.Reason, v.Path = reason.NotEmpty, e.Path
	case *fault.NoCommitError:
		v.Reason, v.Name = reason.NoCommit, e.Name
		if e.Unborn {
			v.Reason = reason.UnbornBranch
		}
	case *fault.BranchInTheWayError:
		v.Reason, v.Name = reason.BranchInTheWay, e.Branch
	case *fault.InRepositoryError:
		v.Reason, v.Path = reason.InRepository, e.Path
	}
}

// sandboxState fills v if err is about the state of a sandbox.
func sandboxState(err error, v *StateError) {
	switch e := err.(type) {
	case *runs.NoRunError:
		v.Reason, v.ID = reason.NoRun, e.ID
	case *runs.EndedError:
		v.Reason, v.ID, v.Name = reason.RunEnded, e.ID, e.Status
	case *runs.ForegroundError:
		v.Reason, v.ID = reason.RunForeground, e.ID
	case *runs.DroppedError:
		v.Reason, v.ID = reason.RunDropped, e.ID
	case *runs.NoQuestionError:
		v.Reason, v.ID = reason.NoQuestion, e.ID
	case *runs.NotWaitingError:
		v.Reason, v.ID = reason.NotWaiting, e.ID
		if e.AsksNext {
			v.Reason = reason.OtherQuestion
		}
	case *runs.UnansweredError:
		v.Reason, v.ID, v.Others = reason.Unanswered, e.ID, e.Options
	case *fault.RunningError:
		v.Reason, v.ID, v.Others = reason.Running, e.ID, e.Programs
	case *fault.SetupCommandError:
		v.Reason, v.ID, v.Name, v.Path = reason.SetupFailed, e.ID, e.Command, e.Log
	case *fault.NothingRunsError:
		v.Reason, v.ID = reason.NothingRuns, e.ID
	case *fault.SharedNetworkError:
		v.Reason, v.ID = reason.SharedNetwork, e.ID
	case *sandbox.PortTakenError:
		v.Reason, v.Name = reason.PortTaken, strconv.Itoa(int(e.Port.Inside))
	case *fault.InsideError:
		v.Reason, v.ID, v.Other = reason.Inside, e.ID, e.Inside
	case *fault.BehindWallsError:
		v.Reason, v.ID = reason.BehindWalls, e.ID
	case *fault.MovedError:
		v.Reason, v.ID, v.Path, v.Other = reason.Moved, e.ID, e.From, e.To
	case *fault.UnfinishedTransitionError:
		v.Reason, v.ID, v.Name = reason.UnfinishedTransition, e.ID, e.LeftSnapshot
	case *fault.LostRollbackError:
		v.Reason, v.ID = reason.LostRollback, e.ID
	case *fault.OffBranchError:
		v.Reason, v.ID, v.Branch = reason.OffBranch, e.ID, e.Branch
	case *fault.UntrackedInTheWayError:
		v.Reason, v.ID, v.Path, v.Others = reason.UntrackedInTheWay, e.ID, e.Path, e.Files
	case *fault.SandboxOperationError:
		v.ID, v.Operation, v.Path = e.ID, e.What, e.Path
		v.Reason, v.Commit = operationReason(e), e.Commit
	case *fault.GitLockedError:
		v.Reason, v.Path = reason.GitLocked, e.Path
	case *fault.UnreadableError:
		v.Reason, v.Path = reason.Unreadable, e.Path
	case *fault.StillChangingError:
		v.Reason, v.Path, v.Others = reason.Changing, e.Dir, e.Paths
	case *fault.ObstructionError:
		v.Reason, v.Path = reason.Obstructed, e.Path
	case *fault.MissingHeadError:
		v.Reason, v.Branch, v.Commit = reason.MissingHead, strings.TrimPrefix(e.Ref, "refs/heads/"), e.OID
	case *fault.UnnamedGitlinkError:
		v.Reason, v.ID, v.Path, v.Name, v.Other = reason.UnnamedGitlink, e.ID, e.Path, e.Finished.Name, e.Finished.Tree
	case *fault.SubmoduleCommitError:
		v.Reason, v.ID, v.Path, v.Commit, v.Other, v.Name = submoduleReason(e), e.ID, e.Path, e.Commit, e.GitDir, e.URL
		v.Others = []string{e.Tree}
	case *fault.ImportError:
		importState(e, v)
	default:
		trashState(err, v)
	}
}

// importState fills v if the sandbox is the cause of a failed import, and refusedView does not describe it.
func importState(e *fault.ImportError, v *StateError) {
	var limit *fault.ReadLimitError
	switch {
	case errors.As(e.Err, &limit):
		v.Reason, v.ID, v.Name, v.Other = reason.ReadLimit, e.ID, limit.Limit, limit.Value
	case e.OfSandbox && e.Tip == "" && !e.Diverged:
		v.Reason, v.ID = reason.NotImported, e.ID
	}
}

// trashState fills v if err is about the content of ended sandboxes.
func trashState(err error, v *StateError) {
	switch e := err.(type) {
	case *fault.TrashTooLargeError:
		v.Reason, v.Path, v.Name = reason.TrashTooLarge, e.Largest.Path, strconv.FormatInt((e.Size-1)>>20+1, 10)+"m"
	case *fault.TrashUnreadableError:
		v.Reason, v.Path = reason.TrashUnreadable, e.Files[0].Path
	case *fault.NotEndedError:
		v.Reason, v.ID = reason.NotEnded, e.ID
	case *fault.TrashGoneError:
		v.Reason, v.ID, v.Path, v.Name = reason.TrashGone, e.ID, e.Gone, e.Ref
	case *fault.UnfinishedDiscardError:
		v.Reason, v.ID = reason.UnfinishedDiscard, e.ID
	}
}

// landingState fills v if err is about review, landings and pushes.
func landingState(err error, v *StateError) {
	switch e := err.(type) {
	case *fault.NotSubmittedError:
		v.Reason, v.ID = reason.NotSubmitted, e.ID
	case *fault.NotInReviewError:
		v.Reason, v.ID, v.Name = reason.NotInReview, e.ID, e.State
	case *fault.BaseMovedError:
		v.Reason, v.ID, v.Branch, v.Commit = reason.BaseMoved, e.ID, e.Branch, e.At
	case *fault.HeadLacksBranchError:
		v.Reason, v.ID, v.Branch = reason.HeadLacksBranch, e.ID, e.Branch
	case *landing.NothingToLandError:
		v.Reason, v.ID = reason.NothingToLand, e.ID
		if e.NoNetChange {
			v.Reason = reason.NoNetChange
		}
	case *fault.NotLandedError:
		v.Reason, v.ID, v.Other = reason.NotLanded, e.ID, e.RestoredFrom
	case *fault.StuckLandingError:
		v.Reason, v.ID, v.Path = reason.StuckLanding, e.ID, e.Path
	case *fault.KeepsMovingError:
		v.Reason, v.ID, v.Branch = reason.KeepsMoving, e.ID, e.Branch
	case *fault.TemporarySandboxError:
		v.Reason, v.ID, v.Other = reason.Temporary, e.ID, e.Verifies
	case *fault.UnrelatedError:
		v.Reason, v.Commit, v.Other = reason.Unrelated, e.Ours, e.Theirs
	case *fault.NoRemoteError:
		v.Reason, v.Name, v.Others = reason.NoRemote, e.Remote, e.Remotes
	case *fault.UpstreamError:
		v.Reason, v.Branch, v.Name, v.Other = reason.Upstream, e.Branch, e.Upstream, e.Remote
	case *fault.RejectedError:
		v.Reason = reason.PushRejected
	case *fault.PushRaceError:
		v.Reason = reason.PushRace
	}
}

// machineState fills v if err is about records, git or this machine.
func machineState(err error, v *StateError) {
	switch e := err.(type) {
	case *fault.CorruptRecordError:
		v.Reason, v.Path = reason.CorruptRecord, e.Path
	case *fault.UnsupportedError:
		v.Reason, v.Name, v.Other = reason.Unsupported, e.Primitive, e.Value
	case *fault.OpenFilesError:
		v.Reason = reason.OpenFiles
	case *fault.UnenforceableError:
		v.Reason = reason.Limit
	case *fault.NoFreeIDError:
		v.Reason = reason.NoFreeID
	case *fault.NoIdentityError:
		v.Reason = reason.NoIdentity
	case *fault.DateError:
		v.Reason, v.Name, v.Other = reason.InvalidDate, e.Variable, e.Value
	case *fault.OutputError:
		v.Reason = reason.Output
	case *fault.OperationTimeoutError:
		v.Reason, v.Name = reason.Timeout, e.What
	case *fault.TooLargeError:
		v.Reason = reason.TooLarge
	case *fault.ReadLimitError:
		v.Reason, v.Name, v.Other = reason.ReadLimit, e.Limit, e.Value
	case *fault.IncompleteError:
		v.Reason, v.Name = reason.MissingObject, e.OID
	}
}
