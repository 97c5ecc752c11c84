package sandbox

import (
	"context"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// UncommittedError reports a sandbox with uncommitted changes.
type UncommittedError struct {
	ID    string
	Path  string   // path of the sandbox
	Files []string // relative to the top of the sandbox

	LeftOut     []snapshots.LeftOut // files that were left out of Files and do not count
	Unadded     []string            // submodules in LeftOut that are committed, at a commit that the index of the sandbox does not have
	TrackedOnly bool                // only changes of tracked files count
	CommitAll   bool                // landing.Request.CommitAll would land them
}

func (e *UncommittedError) Error() string {
	return fmt.Sprintf("uncommitted changes in %s:\n%s", e.Path, fault.ListPaths(e.Files))
}

// OperationError converts the operation that package git/status found in progress in the sandbox.
func (s *Sandbox) OperationError(ctx context.Context, b status.OngoingOperation, prims store.Primitives) error {
	e := &fault.SandboxOperationError{ID: s.ID, What: b.Command, Unstaged: b.IndexUnchanged}
	if prims.Isolation != settings.IsolationOS {
		return e
	}
	if b.OutsideWalls {
		e.Path = s.Tree
	} else if b.Command == "merge" && b.IndexUnchanged {
		e.Merged, e.Commit = s.commitOutside(ctx)
	}
	return e
}
