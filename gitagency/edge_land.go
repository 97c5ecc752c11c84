package gitagency

import (
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/landing"
	"github.com/git-agency/git-agency/gitagency/internal/resolve"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
)

// landingView is dataView for errors of syncs, landings and pushes.
func landingView(err error) error {
	switch e := err.(type) {
	case *fault.ConflictsError:
		return &ConflictsError{
			ID: e.ID, Conflicts: convertAll(e.Conflicts, newConflict), UnfinishedIn: e.UnfinishedIn, StoppedAt: e.StoppedAt, Unlanding: e.Unlanding,
			RevertArgs: e.RevertArgs, Branch: e.Branch, Tree: e.Tree, Directories: e.Directories, AlreadyLanded: e.AlreadyLanded, Worktree: e.Worktree, Err: err,
		}
	case *resolve.UnresolvedError:
		return &UnresolvedError{
			ID: e.ID, Agent: e.Agent, Reason: e.Reason, NoAgent: e.NoAgent, Before: e.Before, Left: e.Left, RestoreErr: publicError(e.RestoreErr), Err: publicError(e.Err),
			text: e.Error(),
		}
	case *sandbox.UncommittedError:
		return &UncommittedError{ID: e.ID, Path: e.Path, Files: e.Files, LeftOut: convertAll(e.LeftOut, newLeftOut), Unadded: e.Unadded, TrackedOnly: e.TrackedOnly, CommitAll: e.CommitAll, Err: err}
	case *fault.LocalChangesError:
		paths := make([]string, len(e.Paths))
		for i, p := range e.Paths {
			paths[i] = p.Path
		}
		return &LocalChangesError{Worktree: e.Worktree, Paths: paths, AlreadyLanded: e.AlreadyNew, AsStarted: e.AsStarted, Err: err}
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
