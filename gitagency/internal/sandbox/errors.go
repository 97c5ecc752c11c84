package sandbox

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
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

// commitOutside reports what a git outside of the walls has committed since the last sync began a merge behind them: the
// merged commit, or a commit that does not have it. It is for hints: what cannot be read counts as no commit.
func (s *Sandbox) commitOutside(ctx context.Context) (merged bool, commit string) {
	var last syncEvent
	if err := s.Repo.Store.ReadEvents(s.Repo.ID, s.ID, func(line []byte) {
		if e := (syncEvent{}); json.Unmarshal(line, &e) == nil && e.Event == SyncVerb {
			last = e
		}
	}); err != nil || last.Snapshot == "" {
		return false, ""
	}
	repo := s.Repo.Git
	then, err := snapshot.ReadState(ctx, repo, last.Snapshot)
	if err != nil {
		return false, ""
	}
	tip, err := repo.Tip(ctx, core.SandboxRef(s.ID))
	if err != nil || tip == "" || tip == then.Head {
		return false, ""
	}
	if merged, err = repo.IsAncestor(ctx, last.Commit, tip); err != nil || merged {
		return merged, ""
	}
	if follows, err := repo.IsAncestor(ctx, then.Head, tip); err != nil || !follows {
		return false, ""
	}
	return false, tip
}
