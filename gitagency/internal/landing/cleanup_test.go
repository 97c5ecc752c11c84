package landing

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Promise: a second Land of the same id removes the tree that a landing with DeferCleanup left, and does not defer the
// removal again. Otherwise background processes would start each other without end.
func TestSecondLandRemovesDeferredSandbox(t *testing.T) {
	t.Parallel()
	l := sandboxtest.NewWithCommit(t, core.Options{})
	first, err := Land(t.Context(), l.Repo, Request{ID: l.Sandbox.ID, DeferCleanup: true})
	if err != nil || !first.CleanupDeferred || first.Already {
		t.Fatalf("%+v, %v", first, err)
	}
	around, entry := l.Repo.Store.SandboxDir(l.Repo.ID, l.Sandbox.ID), worktree.UnregisteredDir(l.Repo.Git, l.Sandbox.ID)
	for _, path := range []string{around, entry} {
		if _, err := os.Lstat(path); err != nil {
			t.Fatalf("the first landing removed it already: %v", err)
		}
	}
	second, err := Land(t.Context(), l.Repo, Request{ID: l.Sandbox.ID, DeferCleanup: true})
	if err != nil || second.CleanupDeferred || !second.Already || second.Commit != first.Commit {
		t.Errorf("%+v, %v", second, err)
	}
	for _, path := range []string{around, entry} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
}

// Promise: RemoveEndedTree removes a landed sandbox completely also if no file was written after the landing's scan, the
// case in which it needs no repository lock.
func TestRemoveLandedTreeWithoutLateWrites(t *testing.T) {
	t.Parallel()
	l := sandboxtest.NewWithCommit(t, core.Options{})
	if landed, err := Land(t.Context(), l.Repo, Request{ID: l.Sandbox.ID, DeferCleanup: true}); err != nil || !landed.CleanupDeferred {
		t.Fatalf("%+v, %v", landed, err)
	}
	later := time.Now().Add(time.Hour) // a scan in the future: the ctime of a file cannot be set
	if err := l.Repo.Store.UpdateInvocationMeta(l.Repo.ID, l.Sandbox.ID, func(m *store.InvocationMeta) { m.CheckedAt = &later }); err != nil {
		t.Fatal(err)
	}
	_, unlock, err := l.Repo.LockAndRecover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := discard.RemoveEndedTree(t.Context(), l.Repo, l.Sandbox.ID); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{l.Repo.Store.SandboxDir(l.Repo.ID, l.Sandbox.ID), worktree.UnregisteredDir(l.Repo.Git, l.Sandbox.ID)} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(l.Repo.CommonDir, "agency", "removed-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}
