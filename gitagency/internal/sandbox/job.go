package sandbox

import (
	"context"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
)

// CheckNoOpenJob refuses a sandbox whose run goes on on another platform: its result will take the place of what is in the sandbox.
func (s *Sandbox) CheckNoOpenJob() error {
	m := s.Repo.Store.Invocation(s.Repo.ID, s.ID, nil).Record
	if !m.HasOpenJob() {
		return nil
	}
	job := "its run on " + m.Primitives.Platform
	if m.PlatformJob != "" {
		job += fmt.Sprintf(" (job %s)", m.PlatformJob)
	}
	return &fault.RunningError{ID: s.ID, Programs: []string{job}}
}

// CheckResult checks that a commit is a complete state of the sandbox.
func (s *Sandbox) CheckResult(ctx context.Context, repo *git.Repo, commit string) error {
	_, err := s.readTarget(ctx, repo, snapshots.Snapshot{Invocation: s.ID, ID: commit})
	return err
}

// RollbackToResult is Rollback to the result of a run on another platform, which is a snapshot of the sandbox by then.
func (s *Sandbox) RollbackToResult(ctx context.Context, result string) error {
	_, err := s.rollBack(ctx, RollbackRequest{Snapshot: result})
	return err
}
