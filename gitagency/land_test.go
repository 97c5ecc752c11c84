package gitagency

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// overtaking is a lab in whose integration branch somebody commits whenever a landing, or taking one back, is about to move
// it, as long as they are told to.
func overtaking(t *testing.T) (l *lab, busy *bool, times *int) {
	t.Helper()
	busy, times = new(bool), new(int)
	l = committed(t, Options{Fault: func(_ context.Context, at string) error {
		if *busy && strings.HasSuffix(at, "/lock:before") {
			*times++
			branch := "refs/heads/" + l.integration().Branch
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

func (l *lab) integration() Worktree {
	l.t.Helper()
	wt, err := l.repo.Worktree("wt")
	if err != nil {
		l.t.Fatal(err)
	}
	return wt
}

func TestALandingThatIsOvertakenEveryTimeGivesUpAndSaysSo(t *testing.T) {
	t.Parallel()
	l, busy, times := overtaking(t)
	*busy = true
	_, err := l.repo.Land(t.Context(), LandRequest{ID: l.box.ID})
	var moving *MovingError
	if !errors.As(err, &moving) || moving.Times != *times || *times != maxLandRetries+1 || moving.ID != l.box.ID || moving.Branch != l.integration().Branch {
		t.Errorf("after %d times: %v", *times, err)
	}
	if err == nil || strings.Contains(err.Error(), "refs/heads/") || !strings.Contains(err.Error(), "nothing has landed") {
		t.Errorf("it says %v", err)
	}
	*busy = false
	if _, err := l.repo.Land(t.Context(), LandRequest{ID: l.box.ID}); err != nil {
		t.Fatal(err)
	}

	*busy, *times = true, 0
	_, err = l.repo.Unland(t.Context(), UnlandRequest{ID: l.box.ID})
	if !errors.As(err, &moving) || moving.Times != *times || *times != maxLandRetries+1 || !strings.Contains(err.Error(), "nothing changed") {
		t.Errorf("after %d times: %v", *times, err)
	}
	*busy = false
	if _, err := l.repo.Unland(t.Context(), UnlandRequest{ID: l.box.ID}); err != nil {
		t.Error(err)
	}
}

func TestWhoIsInterruptedBetweenTwoTriesDoesNotTryAgain(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if err := waitBackoff(ctx, 100, pushBackoff); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}
