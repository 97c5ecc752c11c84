package gitagency

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// newContendedRepo makes a testRepo in which, as long as *busy is true, a commit is added to the integration branch
// whenever a landing or unland is about to move it. *times counts these commits.
func newContendedRepo(t *testing.T) (l *testRepo, busy *bool, times *int) {
	t.Helper()
	busy, times = new(bool), new(int)
	l = newTestRepoWithCommit(t, Options{Fault: func(_ context.Context, at string) error {
		if *busy && strings.HasSuffix(at, "/lock:before") {
			*times++
			branch := "refs/heads/" + l.integrationWorktree().Branch
			script := fmt.Sprintf("git update-ref %s $(git commit-tree -p %s -m busy %s^{tree})", branch, branch, branch)
			cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
			cmd.Dir, cmd.Env = l.repo.CommonDir, l.repo.opts.Env
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
		}
		return nil
	}})
	return l, busy, times
}

func (l *testRepo) integrationWorktree() Worktree {
	l.t.Helper()
	wt, err := l.repo.Worktree("wt")
	if err != nil {
		l.t.Fatal(err)
	}
	return wt
}

func TestLandGivesUpOnMovingBranch(t *testing.T) {
	t.Parallel()
	l, busy, times := newContendedRepo(t)
	*busy = true
	_, err := l.repo.Land(t.Context(), LandRequest{ID: l.sandbox.ID})
	var moving *KeepsMovingError
	if !errors.As(err, &moving) || moving.Times != *times || *times != maxLandRetries+1 || moving.ID != l.sandbox.ID || moving.Branch != l.integrationWorktree().Branch {
		t.Errorf("after %d commits: %v", *times, err)
	}
	if err == nil || strings.Contains(err.Error(), "refs/heads/") || !strings.Contains(err.Error(), "nothing has landed") {
		t.Errorf("error text: %v", err)
	}
	*busy = false
	if _, err := l.repo.Land(t.Context(), LandRequest{ID: l.sandbox.ID}); err != nil {
		t.Fatal(err)
	}

	*busy, *times = true, 0
	_, err = l.repo.Unland(t.Context(), UnlandRequest{ID: l.sandbox.ID})
	if !errors.As(err, &moving) || moving.Times != *times || *times != maxLandRetries+1 || !strings.Contains(err.Error(), "nothing changed") {
		t.Errorf("after %d commits: %v", *times, err)
	}
	*busy = false
	if _, err := l.repo.Unland(t.Context(), UnlandRequest{ID: l.sandbox.ID}); err != nil {
		t.Error(err)
	}
}

func TestWaitBackoffReturnsCancellationCause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if err := waitBackoff(ctx, 100, pushBackoff); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}
