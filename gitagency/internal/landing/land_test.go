package landing

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
)

// newContendedRepo makes a Fixture in which, as long as *busy is true, a commit is added to the integration branch
// whenever a landing or unland is about to move it. *times counts these commits.
func newContendedRepo(t *testing.T) (l *sandboxtest.Fixture, busy *bool, times *int) {
	t.Helper()
	busy, times = new(bool), new(int)
	l = sandboxtest.NewWithCommit(t, core.Options{Fault: func(_ context.Context, at string) error {
		if *busy && strings.HasSuffix(at, "/lock:before") {
			*times++
			branch := "refs/heads/" + integrationWorktree(l).Branch
			script := fmt.Sprintf("git update-ref %s $(git commit-tree -p %s -m busy %s^{tree})", branch, branch, branch)
			cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
			cmd.Dir, cmd.Env = l.Repo.CommonDir, l.Repo.Opts.Env
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
		}
		return nil
	}})
	return l, busy, times
}

func integrationWorktree(l *sandboxtest.Fixture) core.Worktree {
	l.T.Helper()
	wt, err := l.Repo.Worktree("wt")
	if err != nil {
		l.T.Fatal(err)
	}
	return wt
}

func TestLandGivesUpOnMovingBranch(t *testing.T) {
	t.Parallel()
	l, busy, times := newContendedRepo(t)
	*busy = true
	_, err := Land(t.Context(), l.Repo, Request{ID: l.Sandbox.ID})
	var moving *fault.KeepsMovingError
	if !errors.As(err, &moving) || moving.Times != *times || *times != maxLandRetries+1 || moving.ID != l.Sandbox.ID || moving.Branch != integrationWorktree(l).Branch {
		t.Errorf("after %d commits: %v", *times, err)
	}
	if err == nil || strings.Contains(err.Error(), "refs/heads/") || !strings.Contains(err.Error(), "nothing has landed") {
		t.Errorf("error text: %v", err)
	}
	*busy = false
	if _, err := Land(t.Context(), l.Repo, Request{ID: l.Sandbox.ID}); err != nil {
		t.Fatal(err)
	}

	*busy, *times = true, 0
	_, err = Unland(t.Context(), l.Repo, UnlandRequest{ID: l.Sandbox.ID})
	if !errors.As(err, &moving) || moving.Times != *times || *times != maxLandRetries+1 || !strings.Contains(err.Error(), "nothing changed") {
		t.Errorf("after %d commits: %v", *times, err)
	}
	*busy = false
	if _, err := Unland(t.Context(), l.Repo, UnlandRequest{ID: l.Sandbox.ID}); err != nil {
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
