package upload

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// TestLocksInTreeDoNotDelayPut: a program that works in the tree can lock everything there, and delays no put with it.
func TestLocksInTreeDoNotDelayPut(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	lockDir := func(path string) {
		dir, err := os.Open(path)
		must(t, err)
		t.Cleanup(func() { _ = dir.Close() })
		must(t, syscall.Flock(int(dir.Fd()), syscall.LOCK_EX))
	}
	lockDir(filepath.Join(tree.Path, guard.AgencyDir))
	forged := mkdir(t, tree.Path, guard.AgencyDir, stagePrefix+"forged")
	lockDir(forged)
	to := targetOf(tree)
	to.LockTimeout = 0
	tx := &undo.Tx{Fault: func(_ context.Context, at string) error {
		if at == "stage:before" {
			stages, err := filepath.Glob(filepath.Join(tree.Path, guard.AgencyDir, stagePrefix+"*"))
			must(t, err)
			lockDir(stages[0])
		}
		return nil
	}}
	must(t, Put(t.Context(), to, tx, []File{textFile("a", "1")}, nil))
	must(t, Recover(t.Context(), to, 0))
	if exists(forged) {
		t.Error("a lock in the tree protects a forged stage")
	}
	release, err := Quiesce(t.Context(), to, 0)
	must(t, errors.Join(err, release()))
}

func TestPutWaitsUpToLockTimeout(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	before := describeTree(t, filepath.Dir(tree.Path))
	to := targetOf(tree)
	to.LockTimeout = 1
	must(t, os.Mkdir(to.LockDir, 0o700))
	held, err := lock.AcquireDirExclusive(t.Context(), to.LockDir, 0)
	must(t, err)
	var late *lock.TimeoutError
	if err := Put(t.Context(), to, &undo.Tx{}, []File{textFile("a", "1")}, nil); !errors.As(err, &late) {
		t.Error(err)
	}
	must(t, errors.Join(os.Remove(to.LockDir), held.Close()))
	if after := describeTree(t, filepath.Dir(tree.Path)); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	must(t, Put(t.Context(), to, &undo.Tx{}, []File{textFile("a", "1")}, nil))
}

// TestRecoverTellsKilledPutsByLocks makes the files that a killed process leaves, which Goexit does not leave.
func TestRecoverTellsKilledPutsByLocks(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	to := targetOf(tree)
	live, dead, lost := strings.Repeat("a", 16), strings.Repeat("b", 16), strings.Repeat("c", 16)
	for _, key := range []string{live, dead, lost} {
		mkdir(t, to.LockDir, key)
	}
	held, err := lock.AcquireDirExclusive(t.Context(), filepath.Join(to.LockDir, live), 0)
	must(t, err)
	for _, name := range []string{stagePrefix + live, gonePrefix + live + "-" + dead, stagePrefix + dead, gonePrefix + dead + "-" + live, stagePrefix + "..", stagePrefix + live + "x"} {
		write(t, "replaced", tree.Path, guard.AgencyDir, name, oldDirName, "from "+name)
	}
	found, err := FindInterrupted(t.Context(), to)
	if err != nil || len(found) != 4 {
		t.Errorf("%v, %v", found, err)
	}
	must(t, Recover(t.Context(), to, 0))
	if got := strings.Join(listNames(t, tree.Path, guard.AgencyDir), " "); got != "SANDBOX_MARKER "+gonePrefix+live+"-"+dead+" "+stagePrefix+live {
		t.Errorf("stages: %s", got)
	}
	if got := strings.Join(listNames(t, to.LockDir), " "); got != live {
		t.Errorf("locks: %s", got)
	}
	must(t, held.Close())
	must(t, Recover(t.Context(), to, 0))
	if left := listNames(t, tree.Path, guard.AgencyDir)[1:]; len(left) > 0 || exists(to.LockDir) {
		t.Errorf("left: %q", left)
	}
	for _, name := range []string{stagePrefix + live, stagePrefix + dead} {
		if readFile(t, tree.Path, "from "+name) != "replaced" {
			t.Errorf("%s was not undone", name)
		}
	}
}
