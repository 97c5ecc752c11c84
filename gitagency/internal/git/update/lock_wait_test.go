package update

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// Promise: a git of the person's that has the index locked for a moment is waited for, before anything is looked at and
// when the index is to be locked.
func TestAdvanceWaitsForAGitThatIsAtWork(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	ad := newAdvancer(l, varied(l))
	lock, waited := filepath.Join(l.Root, ".git/index.lock"), 0
	ad.repo.LockWait = git.LockWait{Timeout: gittest.Timeout, OnWait: func() {
		waited++
		if waited%3 == 0 { // it has been looked at more than once
			l.Must(os.Remove(lock))
		}
	}}
	l.Write(".git/index.lock", "")
	x, err := Begin(t.Context(), ad.repo, ad.a)
	l.Must(err)
	if waited != 3 {
		t.Fatalf("it looked %d times", waited)
	}
	// What the other has staged meanwhile counts.
	l.Write("keep.txt", "staged\n")
	l.Git("add", "keep.txt")
	status := ad.status()
	l.Write(".git/index.lock", "")
	for _, name := range steps {
		l.Must(ad.step(x, name))
	}
	l.Must(x.Close())
	if waited != 6 {
		t.Errorf("it looked %d times", waited)
	}
	ad.landed(status)
}

// Promise: a lock that stays is refused, and so is who is told to end meanwhile; nothing has changed.
func TestAdvanceDoesNotWaitForALockThatStays(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	ad := newAdvancer(l, varied(l))
	ready, err := Begin(t.Context(), ad.repo, ad.a)
	l.Must(err)
	l.Write(".git/index.lock", "somebody's")
	before := ad.sum()
	stop := errors.New("stop")
	for _, c := range []struct {
		name     string
		patience time.Duration
		ends     bool
	}{{"for good", 5 * time.Millisecond, false}, {"told to end", gittest.Timeout, true}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		waited := 0
		ad.repo.LockWait = git.LockWait{Timeout: c.patience, OnWait: func() {
			if waited++; c.ends {
				cancel(stop)
			}
		}}
		refused := func(what string, err error) {
			t.Helper()
			var locked *OperationInProgressError
			if is := errors.As(err, &locked); c.ends && !errors.Is(err, stop) || !c.ends && (!is || locked.Operation != "index.lock") || waited == 0 {
				t.Errorf("%s, %s: %v, when it had looked %d times", c.name, what, err, waited)
			}
			gittest.RequireSame(t, c.name+", "+what, ad.sum(), before)
		}
		_, err := Begin(ctx, ad.repo, ad.a)
		refused("a dry run", err)
		if c.ends {
			ctx, cancel = context.WithCancelCause(t.Context())
		}
		x := *ready
		waited = 0
		err = x.Lock(ctx)
		l.Must(x.Close())
		refused("locked", err)
		cancel(nil)
	}
}

// Promise: a branch that nobody has does not move while somebody may be checking it out.
func TestAdvanceWaitsForACheckoutUnderWay(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	to := varied(l)
	l.Git("branch", "free")
	linked := filepath.Join(gittest.TempDir(t), "linked")
	l.Git("worktree", "add", "-q", "--detach", linked)
	admin, err := git.DotGitTarget(linked)
	l.Must(err)
	repo := repotest.OpenRepo(l)
	a := Update{Branch: "refs/heads/free", Old: l.Git("rev-parse", "free"), New: to}
	prepare := func() error {
		x, err := Begin(t.Context(), repo, a)
		l.Must(err)
		l.Must(x.Lock(t.Context()))
		err = x.Prepare(t.Context())
		l.Must(x.Close())
		return err
	}
	// One that was left behind does not keep it for long.
	l.WriteIn(admin, "index.lock", "")
	repo.LockWait.Timeout = time.Millisecond
	l.Must(prepare())
	repo.LockWait = git.LockWait{Timeout: gittest.Timeout, OnWait: func() {
		l.Must(os.Remove(filepath.Join(admin, "index.lock")))
		l.GitIn(linked, "checkout", "-q", "free")
	}}
	var moved *CheckoutMovedError
	if err := prepare(); !errors.As(err, &moved) || moved.Worktree != linked {
		t.Errorf("it was prepared under who was checking it out: %v", err)
	}
	if got := l.Git("rev-parse", "free"); got != a.Old {
		t.Errorf("it is at %s", got)
	}
}
