package transport

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// Promise: the ref lock file of a killed git does not block the commits of a sandbox forever: it is removed after a
// timeout. A lock file that its owner removes is waited for.
func TestReceiveRemovesStaleRefLock(t *testing.T) {
	t.Parallel()
	for _, stale := range []bool{true, false} {
		l := gittest.New(t)
		in := newSandboxRepo(l).newRequest()
		repo := repotest.OpenRepo(l)
		repo.LockWait.Timeout = 10 * time.Millisecond
		lock := filepath.Join(l.Root, ".git", sandboxRef+index.LockSuffix)
		l.WriteIn(l.Root, ".git/"+sandboxRef+index.LockSuffix, in.New+"\n")
		if !stale {
			repo.LockWait = git.LockWait{Timeout: time.Minute, OnWait: func() { _ = os.Remove(lock) }}
		}
		l.Must(Receive(t.Context(), repo, in))
		if got := l.Git("rev-parse", sandboxRef); got != in.New {
			t.Errorf("ref is at %s", got)
		}
		if _, err := os.Lstat(lock); !os.IsNotExist(err) {
			t.Errorf("the lock file still exists: %v", err)
		}
	}
}

// TestReceiveTakesNoLockOfARefThatStays: a ref that does not move needs no lock, and one that another process has moved is reported.
func TestReceiveTakesNoLockOfARefThatStays(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	in := newSandboxRepo(l).newRequest()
	repo := repotest.OpenRepo(l)
	l.Must(Receive(t.Context(), repo, in))
	in.Pack, in.Old = nil, in.New
	l.WriteIn(l.Root, ".git/"+sandboxRef+index.LockSuffix, "")
	l.Must(moveReceivedRef(t.Context(), repo, in))
	l.Must(os.Remove(filepath.Join(l.Root, ".git", sandboxRef+index.LockSuffix)))
	l.Git("update-ref", sandboxRef, "HEAD")
	var moved *git.RefMovedError
	if err := moveReceivedRef(t.Context(), repo, in); !errors.As(err, &moved) || moved.Want != in.Old {
		t.Errorf("got %v", err)
	}
}
