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

// Promise: Begin and Lock wait for a git that holds index.lock for a moment.
func TestUpdateWaitsForIndexLock(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	lab := newUpdateLab(l, makeVariedCommit(l))
	lock, waited := filepath.Join(l.Root, ".git/index.lock"), 0
	lab.repo.LockWait = git.LockWait{Timeout: gittest.Timeout, OnWait: func() {
		waited++
		if waited%3 == 0 { // after several attempts
			l.Must(os.Remove(lock))
		}
	}}
	l.Write(".git/index.lock", "")
	tx, err := Begin(t.Context(), lab.repo, lab.spec)
	l.Must(err)
	if waited != 3 {
		t.Fatalf("Begin waited %d times, want 3", waited)
	}
	// A file that the other git staged meanwhile stays staged.
	l.Write("keep.txt", "staged\n")
	l.Git("add", "keep.txt")
	status := lab.status()
	l.Write(".git/index.lock", "")
	for _, name := range stepNames {
		l.Must(lab.runStep(tx, name))
	}
	l.Must(tx.Close())
	if waited != 6 {
		t.Errorf("Begin and Lock waited %d times, want 6", waited)
	}
	lab.requireLanded(status)
}

// Promise: Begin and Lock fail, and change nothing, when index.lock stays until the timeout or the context is cancelled.
func TestUpdateRefusesPersistentIndexLock(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	lab := newUpdateLab(l, makeVariedCommit(l))
	ready, err := Begin(t.Context(), lab.repo, lab.spec)
	l.Must(err)
	l.Write(".git/index.lock", "somebody's")
	before := lab.diskState()
	stop := errors.New("stop")
	for _, c := range []struct {
		name    string
		timeout time.Duration
		cancels bool
	}{{"timeout", time.Nanosecond, false}, {"cancelled", gittest.Timeout, true}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		waited := 0
		lab.repo.LockWait = git.LockWait{Timeout: c.timeout, OnWait: func() {
			if waited++; c.cancels {
				cancel(stop)
			}
		}}
		refused := func(what string, err error) {
			t.Helper()
			var locked *OperationInProgressError
			if is := errors.As(err, &locked); c.cancels && !errors.Is(err, stop) || !c.cancels && (!is || locked.Operation != "index.lock") || waited == 0 {
				t.Errorf("%s, %s: %v after %d waits", c.name, what, err, waited)
			}
			gittest.RequireSame(t, c.name+", "+what, lab.diskState(), before)
		}
		_, err := Begin(ctx, lab.repo, lab.spec)
		refused("Begin", err)
		if c.cancels {
			ctx, cancel = context.WithCancelCause(t.Context())
		}
		tx := *ready
		waited = 0
		err = tx.Lock(ctx)
		l.Must(tx.Close())
		refused("Lock", err)
		cancel(nil)
	}
}

// Promise: before a free branch moves, Prepare waits for worktrees whose index is locked: they may be checking it out.
func TestPrepareWaitsForConcurrentCheckout(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	to := makeVariedCommit(l)
	l.Git("branch", "free")
	linked := filepath.Join(gittest.TempDir(t), "linked")
	l.Git("worktree", "add", "-q", "--detach", linked)
	admin, err := git.DotGitTarget(linked)
	l.Must(err)
	repo := repotest.OpenRepo(l)
	a := Update{Branch: "refs/heads/free", Old: l.Git("rev-parse", "free"), New: to}
	prepare := func() error {
		tx, err := Begin(t.Context(), repo, a)
		l.Must(err)
		l.Must(tx.Lock(t.Context()))
		err = tx.Prepare(t.Context())
		l.Must(tx.Close())
		return err
	}
	// A stale index.lock only delays the update.
	l.WriteIn(admin, "index.lock", "")
	repo.LockWait.Timeout = time.Millisecond
	l.Must(prepare())
	repo.LockWait = git.LockWait{Timeout: gittest.Timeout, OnWait: func() {
		l.Must(os.Remove(filepath.Join(admin, "index.lock")))
		l.GitIn(linked, "checkout", "-q", "free")
	}}
	var moved *CheckoutMovedError
	if err := prepare(); !errors.As(err, &moved) || moved.Worktree != linked {
		t.Errorf("Prepare accepted a branch that was being checked out: %v", err)
	}
	if got := l.Git("rev-parse", "free"); got != a.Old {
		t.Errorf("the branch is at %s", got)
	}
}
