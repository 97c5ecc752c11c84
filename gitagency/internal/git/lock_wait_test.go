package git

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Promise: a git of the person's that has the index locked for a moment is waited for, before anything is looked at and
// when the index is to be locked.
func TestAdvanceWaitsForAGitThatIsAtWork(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ad := newAdvancer(l, varied(l))
	lock, waited := filepath.Join(l.dir, ".git/index.lock"), 0
	ad.repo.lockWait = lockWait{timeout: patience, onWait: func() {
		waited++
		if waited%3 == 0 { // it has been looked at more than once
			l.must(os.Remove(lock))
		}
	}}
	l.write(".git/index.lock", "")
	x, err := ad.repo.Begin(t.Context(), ad.a)
	l.must(err)
	if waited != 3 {
		t.Fatalf("it looked %d times", waited)
	}
	// What the other has staged meanwhile counts.
	l.write("keep.txt", "staged\n")
	l.git("add", "keep.txt")
	status := ad.status()
	l.write(".git/index.lock", "")
	for _, name := range steps {
		l.must(ad.step(x, name))
	}
	l.must(x.Close())
	if waited != 6 {
		t.Errorf("it looked %d times", waited)
	}
	ad.landed(status)
}

// Promise: a lock that stays is refused, and so is who is told to end meanwhile; nothing has changed.
func TestAdvanceDoesNotWaitForALockThatStays(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ad := newAdvancer(l, varied(l))
	ready, err := ad.repo.Begin(t.Context(), ad.a)
	l.must(err)
	l.write(".git/index.lock", "somebody's")
	before := ad.sum()
	stop := errors.New("stop")
	for _, c := range []struct {
		name     string
		patience time.Duration
		ends     bool
	}{{"for good", 5 * time.Millisecond, false}, {"told to end", patience, true}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		waited := 0
		ad.repo.lockWait = lockWait{timeout: c.patience, onWait: func() {
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
			requireSame(t, c.name+", "+what, ad.sum(), before)
		}
		_, err := ad.repo.Begin(ctx, ad.a)
		refused("a dry run", err)
		if c.ends {
			ctx, cancel = context.WithCancelCause(t.Context())
		}
		x := *ready
		waited = 0
		err = x.Lock(ctx)
		l.must(x.Close())
		refused("locked", err)
		cancel(nil)
	}
}

// Promise: a branch that nobody has does not move while somebody may be checking it out.
func TestAdvanceWaitsForACheckoutUnderWay(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	to := varied(l)
	l.git("branch", "free")
	linked := filepath.Join(tempDir(t), "linked")
	l.git("worktree", "add", "-q", "--detach", linked)
	admin, err := DotGitTarget(linked)
	l.must(err)
	repo := l.open()
	a := Update{Branch: "refs/heads/free", Old: l.git("rev-parse", "free"), New: to}
	prepare := func() error {
		x, err := repo.Begin(t.Context(), a)
		l.must(err)
		l.must(x.Lock(t.Context()))
		err = x.Prepare(t.Context())
		l.must(x.Close())
		return err
	}
	// One that was left behind does not keep it for long.
	l.put(admin, "index.lock", "")
	repo.lockWait.timeout = time.Millisecond
	l.must(prepare())
	repo.lockWait = lockWait{timeout: patience, onWait: func() {
		l.must(os.Remove(filepath.Join(admin, "index.lock")))
		l.in(linked, "checkout", "-q", "free")
	}}
	var moved *CheckoutMovedError
	if err := prepare(); !errors.As(err, &moved) || moved.Worktree != linked {
		t.Errorf("it was prepared under who was checking it out: %v", err)
	}
	if got := l.git("rev-parse", "free"); got != a.Old {
		t.Errorf("it is at %s", got)
	}
}
