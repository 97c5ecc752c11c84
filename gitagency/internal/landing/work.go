package landing

import (
	"context"
	"errors"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
)

// Work is the state of the work in a sandbox in which nothing runs.
type Work struct {
	Uncommitted []string // files that keep the sandbox from landing without CommitAll
	Operation   string   // git operation in progress, such as "merge"; empty for none
	Committed   bool     // HEAD has commits that the sandbox did not start with
}

// InspectWork finds out whether all work in a sandbox is committed. Files that match agency.leave do not count.
func InspectWork(ctx context.Context, r *core.Repository, id string) (_ Work, err error) {
	s := sandbox.Of(r, id)
	if err := s.ImportPending(ctx); err != nil {
		return Work{}, &fault.InvocationError{Operation: "inspect", ID: id, Err: err}
	}
	repo, unlock, err := r.LockAndRecover(ctx)
	if err != nil {
		return Work{}, err
	}
	defer unlock()
	h, err := s.OpenLocked(ctx, repo)
	if err != nil {
		return Work{}, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	subject, err := r.PrepareCapture(s.SnapshotSubject(h.Base, ""))
	if err != nil {
		return Work{}, err
	}
	if subject, err = withLeftPatterns(r, subject); err != nil {
		return Work{}, err
	}
	merger, err := merge.NewMerger(repo, h.Base)
	if err != nil {
		return Work{}, err
	}
	defer func() { err = errors.Join(err, merger.Close()) }()
	found, err := merger.Inspect(ctx, subject)
	if err := r.SaveFilesRefusal(id, err, false); err != nil {
		return Work{}, err
	}
	if err := addChangedSubmodules(ctx, r, repo, s, &found); err != nil {
		return Work{}, err
	}
	none, err := repo.IsAncestor(ctx, found.Head, h.Base)
	return Work{Uncommitted: found.Uncommitted, Operation: found.InProgress.Command, Committed: !none}, err
}
