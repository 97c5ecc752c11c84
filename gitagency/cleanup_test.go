package gitagency

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Promise: a second Land of the same id removes the tree that a landing with DeferCleanup left, and does not defer the
// removal again. Otherwise background processes would start each other without end.
func TestSecondLandRemovesDeferredSandbox(t *testing.T) {
	t.Parallel()
	l := newTestRepoWithCommit(t, Options{})
	first, err := l.repo.Land(t.Context(), LandRequest{ID: l.sandbox.ID, DeferCleanup: true})
	if err != nil || !first.CleanupDeferred || first.Already {
		t.Fatalf("%+v, %v", first, err)
	}
	around, entry := l.repo.store.SandboxDir(l.repo.ID, l.sandbox.ID), l.repo.git.UnregisteredDir(l.sandbox.ID)
	for _, path := range []string{around, entry} {
		if _, err := os.Lstat(path); err != nil {
			t.Fatalf("the first landing removed it already: %v", err)
		}
	}
	second, err := l.repo.Land(t.Context(), LandRequest{ID: l.sandbox.ID, DeferCleanup: true})
	if err != nil || second.CleanupDeferred || !second.Already || second.Commit != first.Commit {
		t.Errorf("%+v, %v", second, err)
	}
	for _, path := range []string{around, entry} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
}

// Promise: removeLandedTree removes a landed sandbox completely also if no file was written after the landing's scan, the
// case in which it needs no repository lock.
func TestRemoveLandedTreeWithoutLateWrites(t *testing.T) {
	t.Parallel()
	l := newTestRepoWithCommit(t, Options{})
	if landed, err := l.repo.Land(t.Context(), LandRequest{ID: l.sandbox.ID, DeferCleanup: true}); err != nil || !landed.CleanupDeferred {
		t.Fatalf("%+v, %v", landed, err)
	}
	later := time.Now().Add(time.Hour) // a scan in the future: the ctime of a file cannot be set
	if err := l.repo.store.UpdateInvocationMeta(l.repo.ID, l.sandbox.ID, func(m *store.InvocationMeta) { m.CheckedAt = &later }); err != nil {
		t.Fatal(err)
	}
	_, unlock, err := l.repo.lockAndRecover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := l.repo.removeLandedTree(t.Context(), l.sandbox.ID); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{l.repo.store.SandboxDir(l.repo.ID, l.sandbox.ID), l.repo.git.UnregisteredDir(l.sandbox.ID)} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(l.repo.CommonDir, "agency", "removed-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// Promise: git no longer lists the worktree of a landed sandbox whose removal is deferred, and doctor reports all of its
// remains as a single interrupted discard, which it can fix.
func TestDeferredCleanupIsOneFinding(t *testing.T) {
	t.Parallel()
	l := newTestRepoWithCommit(t, Options{})
	if _, err := l.repo.Land(t.Context(), LandRequest{ID: l.sandbox.ID, DeferCleanup: true}); err != nil {
		t.Fatal(err)
	}
	registered, err := l.repo.git.RegisteredTrees()
	if err != nil || registered[l.sandbox.ID] != "" {
		t.Errorf("git still lists it at %q, %v", registered[l.sandbox.ID], err)
	}
	// No process is removing the sandbox, so doctor reports it, as one finding. The loop is needed because a process that a
	// parallel test forks holds a copy of the sandbox's lock until its exec.
	var findings []Finding
	for range 100 {
		if findings, _, err = l.repo.collectFindings(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(findings) > 0 {
			break
		}
	}
	if len(findings) != 1 || findings[0].Code != "interrupted-discard" {
		t.Fatalf("%+v", findings)
	}
	if _, err := l.repo.Fix(t.Context(), l.sandbox.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(l.repo.git.UnregisteredDir(l.sandbox.ID)); !os.IsNotExist(err) {
		t.Errorf("its administrative directory is still there: %v", err)
	}
}
