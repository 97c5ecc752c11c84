package git

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Promise: the lock of a ref that a killed git has left does not keep what was committed inside for ever. One that goes by
// itself is waited for.
func TestTakeInPastTheLockOfAKilledGit(t *testing.T) {
	t.Parallel()
	for _, left := range []bool{true, false} {
		l := newLab(t)
		in := l.inside().incoming()
		repo := l.open()
		repo.lockWait.timeout = 10 * time.Millisecond
		lock := filepath.Join(l.dir, ".git", ownRef+lockSuffix)
		l.put(l.dir, ".git/"+ownRef+lockSuffix, in.New+"\n")
		if !left {
			repo.lockWait = lockWait{timeout: time.Minute, onWait: func() { _ = os.Remove(lock) }}
		}
		l.must(repo.Receive(t.Context(), in))
		if got := l.git("rev-parse", ownRef); got != in.New {
			t.Errorf("it is at %s", got)
		}
		if _, err := os.Lstat(lock); !os.IsNotExist(err) {
			t.Errorf("the lock is there: %v", err)
		}
	}
}
