package gitagency

import (
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/doctor"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/landing"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// edge passes the error of a call to a package below through publicError.
func edge[T any](value T, err error) (T, error) { return value, publicError(err) }

// publicError returns an error of the packages below as callers of this package see it: with the same message and the same
// causes, and with a value of an error type of this package for every error of theirs that it wraps. Every exported
// function and method that can fail passes its error through it.
func publicError(err error) error {
	if err == nil {
		return nil
	}
	if views := publicViews(err, nil); len(views) > 0 {
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

// publicViews appends the public views of an error and of all that it wraps.
func publicViews(err error, views []error) []error {
	if _, done := err.(*edgeError); done {
		return views
	}
	view := stateView(err)
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
			views = publicViews(below, views)
		}
	case interface{ Unwrap() []error }:
		for _, below := range err.Unwrap() {
			views = publicViews(below, views)
		}
	}
	return views
}

// dataView returns the public view of an error that has a public type of its own; nil for any other.
func dataView(err error) error {
	switch e := err.(type) {
	case *fault.InvalidError:
		return &InvalidError{What: e.What, Value: e.Value, Want: e.Want}
	case *fault.NotFoundError:
		return &NotFoundError{Kind: e.Kind, Query: e.Query}
	case *fault.AmbiguousError:
		return &AmbiguousError{Kind: e.Kind, Query: e.Query, Matches: e.Matches}
	case *fault.NoRepositoryError:
		return &NoRepositoryError{Err: err}
	case *fault.GitTooOldError:
		return &GitTooOldError{Version: e.Have.String(), Err: err}
	case *fault.LockTimeoutError:
		return &LockTimeoutError{Path: e.Path, Holder: e.Holder.String(), Waited: e.Waited, Err: err}
	case *fault.BusyError:
		return &BusyError{ID: e.ID, Waited: e.Waited, Holders: e.Holders, Err: err}
	case *fault.BrokenError:
		return &BrokenError{Kind: e.Kind, ID: e.ID, Reason: e.Reason, Detail: e.Detail, Interrupted: e.Interrupted}
	case *fault.CorruptEntryError:
		return &CorruptEntryError{Path: e.Path, What: e.What}
	case *fault.DamagedError:
		return (*DamagedError)(e)
	case *doctor.FindingError:
		return &FindingError{Code: e.Finding.Code, ID: e.Finding.ID, Problem: e.Finding.Problem, FixCommand: e.Finding.FixCommand}
	case *settings.SettingError:
		return &SettingError{Key: e.Setting.Key, Value: e.Setting.Value, Origin: e.Setting.Origin, Problem: e.Setting.Problem}
	case *fault.ConfinementError:
		return (*ConfinementError)(e)
	case *fault.CannotRunError:
		return &CannotRunError{Program: e.Program, Code: e.Code, Err: publicError(e.Err)}
	case *fault.SetupError:
		return &SetupError{ID: e.ID, Err: publicError(e.Err)}
	case *fault.EndedError:
		return (*EndedError)(e)
	case *fault.NestedRepositoryError:
		return (*NestedRepositoryError)(e)
	case *fault.CleanupError:
		return &CleanupError{Kind: e.Kind, ID: e.ID, Done: e.Done, Err: publicError(e.Err)}
	}
	return landingView(err)
}

// landingView is dataView for errors of syncs, landings and pushes.
func landingView(err error) error {
	switch e := err.(type) {
	case *fault.ConflictsError:
		return &ConflictsError{
			ID: e.ID, Conflicts: convertAll(e.Conflicts, newConflict), UnfinishedIn: e.UnfinishedIn, StoppedAt: e.StoppedAt, Unlanding: e.Unlanding,
			RevertArgs: e.RevertArgs, Branch: e.Branch, Tree: e.Tree, AlreadyLanded: e.AlreadyLanded, Err: err,
		}
	case *sandbox.UncommittedError:
		return &UncommittedError{ID: e.ID, Path: e.Path, Files: e.Files, LeftOut: convertAll(e.LeftOut, newLeftOut), TrackedOnly: e.TrackedOnly, CommitAll: e.CommitAll, Err: err}
	case *fault.LocalChangesError:
		paths := make([]string, len(e.Paths))
		for i, p := range e.Paths {
			paths[i] = p.Path
		}
		return &LocalChangesError{Worktree: e.Worktree, Paths: paths, Err: err}
	case *landing.VerifyError:
		return &VerifyError{
			ID: e.ID, Command: e.Command, ExitCode: e.ExitCode, TimedOut: e.TimedOut, After: e.After, Limit: e.Limit, Log: e.Log,
			Err: publicError(e.Err), Result: newExecResult(e.Result), Merge: e.Merge, text: e.Error(),
		}
	case *landing.NotPushedError:
		return &NotPushedError{
			Branch: e.Branch, Remote: e.Remote, RemoteBranch: e.RemoteBranch, Address: e.Address, IDs: e.IDs, Tries: e.Tries, Tree: e.Tree,
			Conflicts: convertAll(e.Conflicts, newConflict), OutcomeUnknown: e.OutcomeUnknown, Err: publicError(e.Err), text: e.Error(),
		}
	case *fault.NoLongerLandedError:
		return &NoLongerLandedError{
			ID: e.ID, Commit: e.Commit, Branch: e.Branch, UnlandedBy: e.UnlandedBy, Reverted: e.Reverted, RestoreArgs: e.RestoreArgs,
			Ref: e.Ref, RestoreCommit: e.RestoreCommit, Tree: e.Tree, Err: err,
		}
	}
	return nil
}

// refusedView returns the RefusedError for an error; nil for any other.
func refusedView(err error) error {
	v := RefusedError{Err: err}
	switch e := err.(type) {
	case *fault.NotIntegrationError:
		v.Reason, v.Path, v.Name = ReasonNotIntegration, e.Path, e.Worktree
		if e.Worktree != "" {
			v.Reason = ReasonMarkerLost
		}
	case *fault.NotSandboxError:
		v.Reason, v.Path = ReasonNotSandbox, e.Path
		if e.Integration {
			v.Reason = ReasonMarkedIntegration
		}
	case *fault.IsSandboxError:
		v.Reason, v.Path = ReasonIsSandbox, e.Path
	case *fault.OverlapError:
		v.Reason, v.Path, v.Other = ReasonOverlap, e.Path, e.Other
	case *fault.UnsafePathError:
		v.Reason, v.Path = ReasonUnsafePath, e.Path
	case *fault.TrackedMarkerError:
		v.Reason, v.Commit = ReasonTrackedMarker, e.Commit
	case *fault.InvalidObjectError:
		v.Reason, v.ID, v.Commit, v.Path = ReasonInvalidWork, e.ID, e.Base, e.Path
	case *fault.InvalidTreeError:
		v.Reason, v.Path = ReasonInvalidObject, e.Path
	case *fault.InvalidCommitError:
		v.Reason, v.Commit = ReasonInvalidObject, e.Commit
	case *fault.UntrustedFilterError:
		v.Reason, v.Path, v.Name, v.Other = ReasonUntrustedFilter, e.Path, e.Filter, e.File
	case *fault.UntrustedRemoteError:
		v.Reason, v.Name, v.Other, v.Others = ReasonUntrustedRemote, e.Remote, e.URL, e.Hooks
	default:
		return nil
	}
	return &v
}

// stateView returns the StateError for an error; nil for any other.
func stateView(err error) error {
	for _, view := range []func(error, *StateError){worktreeState, sandboxState, landingState, machineState} {
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
	case *fault.NotWorktreeError:
		v.Reason, v.Path = ReasonNotWorktree, e.Path
	case *fault.NameTakenError:
		v.Reason, v.Name, v.ID = ReasonNameTaken, e.Name, e.ID
	case *fault.AdoptedError:
		v.Reason, v.Path, v.Name = ReasonAdopted, e.Path, e.Name
	case *fault.ArchivedError:
		v.Reason, v.ID, v.Name, v.Branch, v.Other = ReasonArchived, e.ID, e.Name, e.Branch, e.Invocation
	case *fault.DirtyError:
		v.Reason, v.Path = ReasonDirty, e.Path
	case *fault.ModifiedTreeError:
		v.Reason, v.Path = ReasonModifiedTree, e.Path
	case *fault.LiveSandboxesError:
		v.Reason, v.Name, v.Others = ReasonLiveSandboxes, e.Name, e.Invocations
	case *fault.NoBranchError:
		v.Reason, v.Name, v.Path = ReasonNoBranch, e.Worktree, e.Path
	case *fault.WorktreeBusyError:
		v.Reason, v.Path, v.Operation = ReasonWorktreeBusy, e.Worktree, e.Operation
	case *fault.NotEmptyError:
		v.Reason, v.Path = ReasonNotEmpty, e.Path
	case *fault.NoCommitError:
		v.Reason, v.Name = ReasonNoCommit, e.Name
		if e.Unborn {
			v.Reason = ReasonUnbornBranch
		}
	case *fault.BranchInTheWayError:
		v.Reason, v.Name = ReasonBranchInTheWay, e.Branch
	case *fault.InRepositoryError:
		v.Reason, v.Path = ReasonInRepository, e.Path
	}
}

// sandboxState fills v if err is about the state of a sandbox.
func sandboxState(err error, v *StateError) {
	switch e := err.(type) {
	case *fault.RunningError:
		v.Reason, v.ID, v.Others = ReasonRunning, e.ID, e.Programs
	case *fault.NothingRunsError:
		v.Reason, v.ID = ReasonNothingRuns, e.ID
	case *fault.SharedNetworkError:
		v.Reason, v.ID = ReasonSharedNetwork, e.ID
	case *sandbox.PortTakenError:
		v.Reason, v.Name = ReasonPortTaken, strconv.Itoa(int(e.Port.Inside))
	case *fault.InsideError:
		v.Reason, v.ID, v.Other = ReasonInside, e.ID, e.Inside
	case *fault.BehindWallsError:
		v.Reason, v.ID = ReasonBehindWalls, e.ID
	case *fault.MovedError:
		v.Reason, v.ID, v.Path, v.Other = ReasonMoved, e.ID, e.From, e.To
	case *fault.UnfinishedTransitionError:
		v.Reason, v.ID, v.Name = ReasonUnfinishedTransition, e.ID, e.LeftSnapshot
	case *fault.LostRollbackError:
		v.Reason, v.ID = ReasonLostRollback, e.ID
	case *fault.OffBranchError:
		v.Reason, v.ID, v.Branch = ReasonOffBranch, e.ID, e.Branch
	case *fault.UntrackedInTheWayError:
		v.Reason, v.ID, v.Path, v.Others = ReasonUntrackedInTheWay, e.ID, e.Path, e.Files
	case *fault.SandboxOperationError:
		v.Reason, v.ID, v.Operation, v.Path = ReasonOperationInProgress, e.ID, e.What, e.Path
		if e.What == "merge" && e.Unstaged {
			v.Reason = ReasonOperationUnstaged
		}
	case *fault.GitLockedError:
		v.Reason, v.Path = ReasonGitLocked, e.Path
	case *fault.UnreadableError:
		v.Reason, v.Path = ReasonUnreadable, e.Path
	case *fault.StillChangingError:
		v.Reason, v.Path, v.Others = ReasonChanging, e.Dir, e.Paths
	case *fault.ObstructionError:
		v.Reason, v.Path = ReasonObstructed, e.Path
	case *fault.MissingHeadError:
		v.Reason, v.Branch, v.Commit = ReasonMissingHead, strings.TrimPrefix(e.Ref, "refs/heads/"), e.OID
	case *fault.UnnamedGitlinkError:
		v.Reason, v.ID, v.Path = ReasonUnnamedGitlink, e.ID, e.Path
	}
}

// landingState fills v if err is about review, landings and pushes.
func landingState(err error, v *StateError) {
	switch e := err.(type) {
	case *fault.NotSubmittedError:
		v.Reason, v.ID = ReasonNotSubmitted, e.ID
	case *fault.NotInReviewError:
		v.Reason, v.ID, v.Name = ReasonNotInReview, e.ID, e.State
	case *fault.BaseMovedError:
		v.Reason, v.ID, v.Branch, v.Commit = ReasonBaseMoved, e.ID, e.Branch, e.At
	case *fault.HeadLacksBranchError:
		v.Reason, v.ID, v.Branch = ReasonHeadLacksBranch, e.ID, e.Branch
	case *landing.NothingToLandError:
		v.Reason, v.ID = ReasonNothingToLand, e.ID
		if e.NoNetChange {
			v.Reason = ReasonNoNetChange
		}
	case *fault.NotLandedError:
		v.Reason, v.ID = ReasonNotLanded, e.ID
	case *fault.StuckLandingError:
		v.Reason, v.ID, v.Path = ReasonStuckLanding, e.ID, e.Path
	case *fault.KeepsMovingError:
		v.Reason, v.ID, v.Branch = ReasonKeepsMoving, e.ID, e.Branch
	case *fault.TemporarySandboxError:
		v.Reason, v.ID, v.Other = ReasonTemporary, e.ID, e.Verifies
	case *fault.UnrelatedError:
		v.Reason, v.Commit, v.Other = ReasonUnrelated, e.Ours, e.Theirs
	case *fault.NoRemoteError:
		v.Reason, v.Name, v.Others = ReasonNoRemote, e.Remote, e.Remotes
	case *fault.UpstreamError:
		v.Reason, v.Branch, v.Name, v.Other = ReasonUpstream, e.Branch, e.Upstream, e.Remote
	case *fault.RejectedError:
		v.Reason = ReasonPushRejected
	case *fault.PushRaceError:
		v.Reason = ReasonPushRace
	}
}

// machineState fills v if err is about records, git or this machine.
func machineState(err error, v *StateError) {
	switch e := err.(type) {
	case *fault.CorruptRecordError:
		v.Reason, v.Path = ReasonCorruptRecord, e.Path
	case *fault.UnsupportedError:
		v.Reason, v.Name, v.Other = ReasonUnsupported, e.Primitive, e.Value
	case *fault.UnenforceableError:
		v.Reason = ReasonLimit
	case *fault.NoFreeIDError:
		v.Reason = ReasonNoFreeID
	case *fault.NoIdentityError:
		v.Reason = ReasonNoIdentity
	case *fault.DateError:
		v.Reason, v.Name, v.Other = ReasonInvalidDate, e.Variable, e.Value
	case *fault.OutputError:
		v.Reason = ReasonOutput
	case *fault.OperationTimeoutError:
		v.Reason, v.Name = ReasonTimeout, e.What
	case *fault.TooLargeError:
		v.Reason = ReasonTooLarge
	case *fault.IncompleteError:
		v.Reason, v.Name = ReasonMissingObject, e.OID
	}
}
