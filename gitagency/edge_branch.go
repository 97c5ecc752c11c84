package gitagency

import (
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/reason"
)

// branchState fills v if err is about a branch that does not exist any more.
func branchState(err error, v *StateError) {
	switch e := err.(type) {
	case *fault.MissingBranchError:
		v.Reason, v.ID, v.Name, v.Branch, v.Other, v.Commit, v.Operation = reason.MissingBranch, e.ID, e.Worktree, e.Branch, e.RenamedTo, e.Commit, e.Operation
		if e.Operation != "" {
			v.Others, v.Path = []string{e.Arguments}, e.Finished.Tree
		}
	}
}

// operationReason returns the reason of an operation in progress.
func operationReason(e *fault.SandboxOperationError) reason.Reason {
	switch {
	case e.Merged:
		return reason.MergedOutside
	case e.Commit != "":
		return reason.CommittedOutside
	case e.What == "merge" && e.Unstaged:
		return reason.OperationUnstaged
	}
	return reason.OperationInProgress
}
