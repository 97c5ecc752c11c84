package sandbox

import (
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// UncommittedError reports a sandbox with uncommitted changes.
type UncommittedError struct {
	ID    string
	Path  string   // path of the sandbox
	Files []string // relative to the top of the sandbox

	LeftOut     []LeftOut // files that were left out of Files and do not count
	TrackedOnly bool      // only changes of tracked files count
	CommitAll   bool      // landing.Request.CommitAll would land them
}

func (e *UncommittedError) Error() string {
	return fmt.Sprintf("uncommitted changes in %s:\n%s", e.Path, fault.ListPaths(e.Files))
}

// OperationError converts the operation that package git/status found in progress in the sandbox.
func (s *Sandbox) OperationError(b status.OngoingOperation, prims store.Primitives) error {
	e := &fault.SandboxOperationError{ID: s.ID, What: b.Command, Unstaged: b.IndexUnchanged}
	if b.OutsideWalls && prims.Isolation == settings.IsolationOS {
		e.Path = s.Tree
	}
	return e
}
